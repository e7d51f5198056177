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
	"slices"
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

// makeCerts writes two new certificates into dir, each signed by itself: that of the servers and that of clients. Both
// sides trust both.
func makeCerts(dir string) (Certs, error) {
	server, serverKey, err := issue("localhost")
	if err != nil {
		return Certs{}, err
	}
	client, clientKey, err := issue("client")
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
		c.CAFile:   slices.Concat(server, client),
		c.CertFile: client,
		c.KeyFile:  clientKey,
		c.server:   slices.Concat(serverKey, server),
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return Certs{}, err
		}
	}
	return c, nil
}

// issue creates a certificate and its key, in PEM.
func issue(name string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
