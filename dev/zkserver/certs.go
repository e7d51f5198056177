package zkserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certs names PEM files for clients of an ensemble with TLS. The servers' certificate is for localhost and 127.0.0.1. A
// client with CertFile has the identity "CN=client" in ZooKeeper's scheme x509.
type Certs struct {
	CAFile, CertFile, KeyFile string

	server string // key and certificate of the servers
}

// Config returns a client's TLS configuration with these files, for connections to "localhost".
func (c Certs) Config() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate", c.CAFile)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}, nil
}

// identity is a certificate and its key, both also in PEM.
type identity struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// makeCerts writes a new certificate authority and the certificates that it signed into dir. It does not keep the
// authority's key.
func makeCerts(dir string) (Certs, error) {
	ca, err := issue("muster development CA", nil)
	if err != nil {
		return Certs{}, err
	}
	server, err := issue("localhost", ca)
	if err != nil {
		return Certs{}, err
	}
	client, err := issue("client", ca)
	if err != nil {
		return Certs{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Certs{}, err
	}
	c := Certs{
		CAFile:   filepath.Join(dir, "ca.pem"),
		CertFile: filepath.Join(dir, "client.pem"),
		KeyFile:  filepath.Join(dir, "client-key.pem"),
		server:   filepath.Join(dir, "server.pem"),
	}
	files := map[string][]byte{
		c.CAFile:   ca.certPEM,
		c.CertFile: client.certPEM,
		c.KeyFile:  client.keyPEM,
		c.server:   append(server.keyPEM, server.certPEM...),
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return Certs{}, err
		}
	}
	return c, nil
}

// issue creates a certificate signed by by. If by is nil, it creates an authority, which signs itself.
func issue(name string, by *identity) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		BasicConstraintsValid: true,
	}
	if by == nil {
		template.IsCA = true
		template.KeyUsage = x509.KeyUsageCertSign
		by = &identity{cert: template, key: key}
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		template.DNSNames = []string{"localhost"}
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &identity{
		cert:    cert,
		key:     key,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}
