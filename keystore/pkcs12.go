package keystore

import (
	"encoding/asn1"
	"unicode/utf16"

	"golang.org/x/crypto/cryptobyte"
	der "golang.org/x/crypto/cryptobyte/asn1"
)

// The form PKCS #12 (RFC 7292): safes of bags, each with attributes, its name among
// them. The certificate goes to a safe of its own.
var (
	oidData         = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertBag      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509         = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	oidFriendlyName = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 20}
	// By this one Java tells authorities from all other certificates.
	oidTrustedUsage = asn1.ObjectIdentifier{2, 16, 840, 1, 113894, 746875, 1, 1}
	oidAnyUsage     = asn1.ObjectIdentifier{2, 5, 29, 37, 0}

	inner = der.Tag(0).Constructed().ContextSpecific()
)

const (
	pkcs12Version = 3
	bmpString     = der.Tag(30)
)

func addPKCS12(list []byte, name string, certificate []byte) ([]byte, error) {
	input := cryptobyte.String(list)
	var pfx, safes cryptobyte.String
	var version int
	if !input.ReadASN1(&pfx, der.SEQUENCE) || !input.Empty() || !pfx.ReadASN1Integer(&version) || version != pkcs12Version {
		return nil, ErrForm
	}
	content, ok := readData(&pfx)
	if !ok {
		return nil, ErrForm
	}
	if !pfx.Empty() {
		return nil, ErrSealed // what follows is a sum under a password
	}
	if !content.ReadASN1(&safes, der.SEQUENCE) || !content.Empty() {
		return nil, ErrForm
	}
	var kept []byte
	for !safes.Empty() {
		var safe cryptobyte.String
		if !safes.ReadASN1Element(&safe, der.SEQUENCE) {
			return nil, ErrForm
		}
		if nameOf(safe) != name {
			kept = append(kept, safe...)
		}
	}
	var b cryptobyte.Builder
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(pkcs12Version)
		addData(b, func(b *cryptobyte.Builder) {
			b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddBytes(kept)
				addData(b, func(b *cryptobyte.Builder) {
					b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) { addBag(b, name, certificate) })
				})
			})
		})
	})
	return b.Bytes()
}

// readData reads contents that are neither encrypted nor signed.
func readData(s *cryptobyte.String) (data cryptobyte.String, ok bool) {
	var info, wrapped cryptobyte.String
	var kind asn1.ObjectIdentifier
	ok = s.ReadASN1(&info, der.SEQUENCE) && info.ReadASN1ObjectIdentifier(&kind) && kind.Equal(oidData) &&
		info.ReadASN1(&wrapped, inner) && wrapped.ReadASN1(&data, der.OCTET_STRING)
	return data, ok
}

func addData(b *cryptobyte.Builder, content cryptobyte.BuilderContinuation) {
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1ObjectIdentifier(oidData)
		b.AddASN1(inner, func(b *cryptobyte.Builder) { b.AddASN1(der.OCTET_STRING, content) })
	})
}

// addBag adds an authority.
func addBag(b *cryptobyte.Builder, name string, certificate []byte) {
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1ObjectIdentifier(oidCertBag)
		b.AddASN1(inner, func(b *cryptobyte.Builder) {
			b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1ObjectIdentifier(oidX509)
				b.AddASN1(inner, func(b *cryptobyte.Builder) { b.AddASN1OctetString(certificate) })
			})
		})
		b.AddASN1(der.SET, func(b *cryptobyte.Builder) {
			addAttribute(b, oidFriendlyName, func(b *cryptobyte.Builder) {
				b.AddASN1(bmpString, func(b *cryptobyte.Builder) {
					for _, c := range utf16.Encode([]rune(name)) {
						b.AddUint16(c)
					}
				})
			})
			addAttribute(b, oidTrustedUsage, func(b *cryptobyte.Builder) { b.AddASN1ObjectIdentifier(oidAnyUsage) })
		})
	})
}

func addAttribute(b *cryptobyte.Builder, kind asn1.ObjectIdentifier, value cryptobyte.BuilderContinuation) {
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1ObjectIdentifier(kind)
		b.AddASN1(der.SET, value)
	})
}

// nameOf is the name of a safe's only bag; of another safe it is none.
func nameOf(safe cryptobyte.String) string {
	var bags, bag, value, attributes cryptobyte.String
	var kind asn1.ObjectIdentifier
	content, ok := readData(&safe)
	if !ok || !content.ReadASN1(&bags, der.SEQUENCE) || !bags.ReadASN1(&bag, der.SEQUENCE) || !bags.Empty() {
		return ""
	}
	if !bag.ReadASN1ObjectIdentifier(&kind) || !bag.ReadASN1(&value, inner) || !bag.ReadASN1(&attributes, der.SET) {
		return ""
	}
	for !attributes.Empty() {
		var attribute, values, text cryptobyte.String
		if !attributes.ReadASN1(&attribute, der.SEQUENCE) || !attribute.ReadASN1ObjectIdentifier(&kind) || !attribute.ReadASN1(&values, der.SET) {
			return ""
		}
		if kind.Equal(oidFriendlyName) && values.ReadASN1(&text, bmpString) {
			return fromBMP(text)
		}
	}
	return ""
}

func fromBMP(s cryptobyte.String) string {
	var all []uint16
	for c := uint16(0); s.ReadUint16(&c); {
		all = append(all, c)
	}
	return string(utf16.Decode(all))
}
