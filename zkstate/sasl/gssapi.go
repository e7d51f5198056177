package sasl

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"fmt"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"muster/zkstate/zkconn"
)

// GSSAPI is RFC 4752, with the tokens of RFC 4121. The client sends an AP-REQ, the server proves itself with an AP-REP,
// the client sends an empty token, the server offers how to protect what follows, and the client asks for nothing of
// that. The server's last reply has no token.

// The tokens' ids.
var (
	apRequest = []byte{1, 0}
	apReply   = []byte{2, 0}
	krbError  = []byte{3, 0}
)

// noLayer is the client's choice: no protection (1), and so no size of a protected message (3 bytes). The name of
// another user could follow, and does not.
var noLayer = []byte{1, 0, 0, 0}

type gssLogin struct {
	*ticket
	fresh  bool   // the ticket was fetched for this login
	forget func() // the ticket
	step   int

	auth     types.Authenticator
	sealing  types.EncryptionKey
	acceptor bool // sealing is the server's
}

func (l *gssLogin) Next(token []byte) (answer []byte, done bool, err error) {
	defer recovered(&err) // the library reads what the server has written
	l.step++
	switch l.step {
	case 1:
		answer, err = l.request()
		return answer, false, err
	case 4:
		if len(token) > 0 {
			return nil, false, errToken
		}
		return nil, true, nil
	}
	if token == nil {
		return nil, false, zkconn.ErrNoSASL
	}
	if l.step == 2 {
		if err := l.accept(token); err != nil {
			return nil, false, err
		}
		return []byte{}, false, nil
	}
	answer, err = l.decline(token)
	return answer, false, err
}

var errToken = fmt.Errorf("%w: the server's answer is not one of Kerberos", zkconn.ErrAuthFailed)

func (l *gssLogin) Refused() (again bool) {
	l.forget()
	return !l.fresh
}

// request is the first token.
func (l *gssLogin) request() ([]byte, error) {
	auth, err := types.NewAuthenticator(l.realm, l.client)
	if err != nil {
		return nil, err
	}
	kind, err := crypto.GetEtype(l.key.KeyType)
	if err != nil {
		return nil, err
	}
	if err := auth.GenerateSeqNumberAndSubKey(l.key.KeyType, kind.GetKeyByteSize()); err != nil {
		return nil, err
	}
	asked := make([]byte, 24) // the length of channel bindings, no bindings, flags
	binary.LittleEndian.PutUint32(asked, 16)
	binary.LittleEndian.PutUint32(asked[20:], gssapi.ContextFlagMutual|gssapi.ContextFlagInteg)
	auth.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: asked}
	l.auth, l.sealing = auth, auth.SubKey
	request, err := messages.NewAPReq(l.ticket.ticket, l.key, auth)
	if err != nil {
		return nil, err
	}
	types.SetFlag(&request.APOptions, flags.APOptionMutualRequired)
	body, err := request.Marshal()
	if err != nil {
		return nil, err
	}
	return frame(apRequest, body)
}

// accept checks that the server could read the request, and takes its key if it has chosen one.
func (l *gssLogin) accept(token []byte) error {
	id, body, err := unframe(token)
	switch {
	case err != nil:
		return err
	case bytes.Equal(id, krbError):
		var e messages.KRBError
		if err := e.Unmarshal(body); err != nil {
			return errToken
		}
		return fmt.Errorf("%w: the server refuses the ticket: %.200s", zkconn.ErrAuthFailed, e.EText)
	case !bytes.Equal(id, apReply):
		return errToken
	}
	var reply messages.APRep
	var part messages.EncAPRepPart
	if err := reply.Unmarshal(body); err != nil {
		return errToken
	}
	plain, err := crypto.DecryptEncPart(reply.EncPart, l.key, keyusage.AP_REP_ENCPART)
	if err == nil {
		err = part.Unmarshal(plain)
	}
	if err != nil || part.Cusec != l.auth.Cusec || part.CTime.Unix() != l.auth.CTime.Unix() {
		return fmt.Errorf("%w: the server does not prove who it is", zkconn.ErrAuthFailed)
	}
	if len(part.Subkey.KeyValue) > 0 {
		l.sealing, l.acceptor = part.Subkey, true
	}
	return nil
}

// decline reads what the server offers, and asks for nothing of it.
func (l *gssLogin) decline(token []byte) ([]byte, error) {
	var offer gssapi.WrapToken
	const sealed = 2
	if err := offer.Unmarshal(unrotated(token), true); err != nil || offer.Flags&sealed != 0 {
		return nil, errToken
	}
	if ok, err := offer.Verify(l.sealing, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil || !ok {
		return nil, fmt.Errorf("%w: the server's offer is not signed by it", zkconn.ErrAuthFailed)
	}
	if len(offer.Payload) != 4 || offer.Payload[0]&noLayer[0] == 0 {
		return nil, fmt.Errorf("%w: the server wants to protect what is sent, which ZooKeeper cannot", zkconn.ErrAuthFailed)
	}
	kind, err := crypto.GetEtype(l.sealing.KeyType)
	if err != nil {
		return nil, err
	}
	const acceptorKey = 4
	choice := gssapi.WrapToken{
		EC: uint16(kind.GetHMACBitLength() / 8), SndSeqNum: uint64(l.auth.SeqNumber), Payload: noLayer,
	}
	if l.acceptor {
		choice.Flags = acceptorKey
	}
	if err := choice.SetCheckSum(l.sealing, keyusage.GSSAPI_INITIATOR_SEAL); err != nil {
		return nil, err
	}
	return choice.Marshal()
}

// unrotated is a wrapped token with its body as it was before its right rotation.
func unrotated(token []byte) []byte {
	if len(token) <= gssapi.HdrLen {
		return token
	}
	body := token[gssapi.HdrLen:]
	by := int(binary.BigEndian.Uint16(token[6:])) % len(body)
	return bytes.Join([][]byte{token[:gssapi.HdrLen], body[by:], body[:by]}, nil)
}

var krb5 = asn1.ObjectIdentifier{1, 2, 840, 113554, 1, 2, 2}

// frame puts a message of Kerberos into a token of GSS: [APPLICATION 0], the mechanism, the message's id, the message.
func frame(id, body []byte) ([]byte, error) {
	mechanism, err := asn1.Marshal(krb5)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(asn1.RawValue{
		Class: asn1.ClassApplication, IsCompound: true, Bytes: bytes.Join([][]byte{mechanism, id, body}, nil),
	})
}

func unframe(token []byte) (id, body []byte, err error) {
	var outer asn1.RawValue
	rest, err := asn1.Unmarshal(token, &outer)
	if err != nil || len(rest) > 0 || outer.Class != asn1.ClassApplication || outer.Tag != 0 {
		return nil, nil, errToken
	}
	var mechanism asn1.ObjectIdentifier
	message, err := asn1.Unmarshal(outer.Bytes, &mechanism)
	if err != nil || !mechanism.Equal(krb5) || len(message) < 2 {
		return nil, nil, errToken
	}
	return message[:2], message[2:], nil
}

// recovered makes an error of a panic: the library has some, for what it does not expect.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: what was read is not sound Kerberos", zkconn.ErrAuthFailed)
	}
}
