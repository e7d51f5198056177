package resource

// TLS names the files of a TLS connection; a name is empty if there is no such file. In a configuration the names are
// relative to its directory, in a saved plan to the directory in which apply runs.
type TLS struct {
	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
}
