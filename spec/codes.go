package spec

// The codes of all diagnostics. A code keeps its meaning for ever. Number 11 of the expressions is not given any more,
// and not used again. The hundreds group them: 10 files, 11 syntax, 12 jobs, 13 blocks and arguments, 14 variables, 15
// expressions, 16 muster and zookeeper, 17 drift, 18 warnings, 19 groups, 20 queues.
const (
	codeDirectory    = "M1001"
	codeNoFiles      = "M1002"
	codeFile         = "M1003"
	codeEncoding     = "M1004"
	codeTooLarge     = "M1005"
	codeCost         = "M1006"
	codeSyntax       = "M1101"
	codeUnclosed     = "M1102"
	codeCharacter    = "M1103"
	codeArgTwice     = "M1104"
	codeJSON         = "M1105"
	codeType         = "M1201"
	codeNull         = "M1202"
	codeWorkers      = "M1203"
	codeDuration     = "M1204"
	codeEnum         = "M1205"
	codeName         = "M1206"
	codePath         = "M1207"
	codeLabels       = "M1208"
	codeForEach      = "M1209"
	codeForEachKey   = "M1210"
	codeAddressTwice = "M1211"
	codePathTwice    = "M1212"
	codePathNested   = "M1213"
	codeHome         = "M1214"
	codePrecondition = "M1215"
	codeCondition    = "M1216"
	codeBlock        = "M1301"
	codeArgument     = "M1302"
	codeMissing      = "M1303"
	codeBlockLabel   = "M1304"
	codeBlockTwice   = "M1305"
	codeBlockOrArg   = "M1306"
	codeNoMuster     = "M1307"
	codeVarTwice     = "M1401"
	codeVarName      = "M1402"
	codeVarType      = "M1403"
	codeVarDefault   = "M1404"
	codeVarValue     = "M1405"
	codeVarUnknown   = "M1406"
	codeVarMissing   = "M1407"
	codeVarInvalid   = "M1408"
	codeVarInput     = "M1409"
	codeVarFile      = "M1410"
	codeObjectKey    = "M1411"
	codeReference    = "M1501"
	codeEach         = "M1502"
	codeFunction     = "M1503"
	codeCall         = "M1504"
	codeOperand      = "M1505"
	codeIndex        = "M1506"
	codeLocalCycle   = "M1507"
	codeLocalTwice   = "M1508"
	codeExpression   = "M1509"
	codeConstant     = "M1510"
	codeStack        = "M1601"
	codeVersion      = "M1602"
	codeConstraint   = "M1603"
	codeServer       = "M1604"
	codeACL          = "M1605"
	codeTLS          = "M1606"
	codeTakeOver     = "M1607"
	codeIgnored      = "M1701"
	codeIgnoreField  = "M1702"
	codeDate         = "M1703"
	codeExpired      = "M1704"
	codeReason       = "M1705"
	codeOpen         = "M1801"
	codeDutyTwice    = "M1901"
	codeDuties       = "M1902"
	codePromoteAfter = "M1903"
	codeVersions     = "M1904"
	codeSchedule     = "M1905"
	codeDutyNumber   = "M1906"
	codeRedis        = "M2001"
	codeCredentials  = "M2002"
	codeSize         = "M2003"
	codeSizes        = "M2004"
	codeAttempts     = "M2005"
)

// Code is the meaning of a diagnostic's code in one line.
type Code struct{ Code, Meaning string }

// Codes lists every code in ascending order.
func Codes() []Code {
	return []Code{
		{codeDirectory, "the configuration is missing, or cannot be read"},
		{codeNoFiles, "the directory holds no *.hcl or *.hcl.json file"},
		{codeFile, "a file cannot be read"},
		{codeEncoding, "a file is not UTF-8"},
		{codeTooLarge, "a file is larger or nested deeper than a configuration can be"},
		{codeCost, "reading the configuration takes too much time or memory"},
		{codeSyntax, "the syntax is not HCL"},
		{codeUnclosed, "a block, bracket, string or template is not closed"},
		{codeCharacter, "a character or operator that HCL does not know"},
		{codeArgTwice, "an argument is set twice in one block"},
		{codeJSON, "the syntax is not JSON, or the JSON has the wrong shape"},
		{codeType, "a value has the wrong type"},
		{codeNull, "a required value is null"},
		{codeWorkers, "workers is not a whole number from 1 to 20000"},
		{codeDuration, "a duration is malformed or out of bounds"},
		{codeEnum, "a value is none of those that are allowed"},
		{codeName, "a name or block label cannot be a znode name"},
		{codePath, "a root or home cannot be used as a znode path"},
		{codeLabels, "a label's key or value cannot be used"},
		{codeForEach, "for_each is neither a map nor a set of strings"},
		{codeForEachKey, "a key of for_each cannot be used in an address"},
		{codeAddressTwice, "two blocks of one kind have one label"},
		{codePathTwice, "two jobs, groups or queues have one znode path"},
		{codePathNested, "a znode path lies inside that of another job, group or queue"},
		{codeHome, "the znode path of a job, group or queue and muster's home overlap"},
		{codePrecondition, "a precondition does not hold"},
		{codeCondition, "a condition or its error_message cannot be used"},
		{codeBlock, "a block of this type is not known here"},
		{codeArgument, "an argument of this name is not known here"},
		{codeMissing, "a required argument or block is missing"},
		{codeBlockLabel, "a block has too few or too many labels"},
		{codeBlockTwice, "a block that may stand once stands twice"},
		{codeBlockOrArg, "a block is written as an argument, or an argument as a block"},
		{codeNoMuster, "there is no muster block"},
		{codeVarTwice, "a variable is declared twice"},
		{codeVarName, "the name of a variable or local is not an identifier"},
		{codeVarType, "a variable's type constraint is malformed"},
		{codeVarDefault, "a variable's default does not fit its type"},
		{codeVarValue, "a variable's value does not fit its type"},
		{codeVarUnknown, "a value is given for a variable that is not declared"},
		{codeVarMissing, "a variable has neither a value nor a default"},
		{codeVarInvalid, "a variable's value fails its validation"},
		{codeVarInput, "a --var is not NAME=VALUE, or its value is not an expression"},
		{codeVarFile, "a variable file cannot be read, or holds more than values"},
		{codeObjectKey, "an object has an attribute that its type does not know"},
		{codeReference, "a reference to something that does not exist"},
		{codeEach, "each is used where there is no for_each, or not as each.key or each.value"},
		{codeFunction, "a function of this name does not exist"},
		{codeCall, "a function was called with arguments that it does not accept"},
		{codeOperand, "an operator or a template got a value of the wrong type"},
		{codeIndex, "an index or attribute that the value does not have"},
		{codeLocalCycle, "locals refer to each other in a circle"},
		{codeLocalTwice, "a local is declared twice"},
		{codeExpression, "an expression cannot be evaluated"},
		{codeConstant, "a reference or a call where only a constant can stand"},
		{codeStack, "the stack name cannot be used"},
		{codeVersion, "this version of muster does not satisfy required_version"},
		{codeConstraint, "required_version is malformed"},
		{codeServer, "a server is not host:port"},
		{codeACL, "an ACL entry is not scheme:id:perms"},
		{codeTLS, "TLS files are incomplete"},
		{codeTakeOver, "take_over names the stack itself, or is malformed"},
		{codeIgnored, "a drift ignore names a job, group or queue that is not declared"},
		{codeIgnoreField, "a drift ignore names a field that its job, group or queue does not have"},
		{codeDate, "a date is not of the form 2027-01-31"},
		{codeExpired, "a drift ignore has expired"},
		{codeReason, "a drift ignore gives no reason"},
		{codeOpen, "everybody who reaches ZooKeeper may change these jobs"},
		{codeDutyTwice, "two duties of a group have one name"},
		{codeDuties, "a group has too many duties, or is too large"},
		{codePromoteAfter, "promote_after is neither a number of members nor a percentage"},
		{codeVersions, "versions is not a version constraint"},
		{codeSchedule, "a schedule or its time zone cannot be used"},
		{codeDutyNumber, "retries or keep is not a whole number within its limits"},
		{codeRedis, "redis is not the address of a Redis"},
		{codeCredentials, "a password or a user name stands in the address of a Redis"},
		{codeSize, "a size is malformed or out of bounds"},
		{codeSizes, "max_bytes cannot hold one task of max_task"},
		{codeAttempts, "attempts is not a whole number from 1 to 100"},
	}
}
