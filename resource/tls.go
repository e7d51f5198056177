package resource

// TLS names the files of a TLS connection; a name is empty if there is no such file. Where it stands says what a relative
// name is relative to: in a configuration to its directory, in a saved plan to where apply runs.
type TLS struct {
	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
}
