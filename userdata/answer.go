package userdata

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// envelope is an answer of a Forms server. Whatever is neither its header nor its body stands in Others and Text.
type envelope struct {
	XMLName xml.Name  `xml:"http://schemas.xmlsoap.org/soap/envelope/ Envelope"`
	Headers []element `xml:"http://schemas.xmlsoap.org/soap/envelope/ Header"`
	Bodies  []body    `xml:"http://schemas.xmlsoap.org/soap/envelope/ Body"`
	Others  []element `xml:",any"`
	Text    string    `xml:",chardata"`
}

type body struct {
	Faults []faultError `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault"`
	Others []element    `xml:",any"`
	Text   string       `xml:",chardata"`
}

type element struct{ XMLName xml.Name }

// faultError is what the server says of its own failure.
type faultError struct {
	Code   string `xml:"faultcode"`
	Reason string `xml:"faultstring"`
}

// Error implements error.
func (f *faultError) Error() string {
	return fmt.Sprintf("it answered with a fault: %s (%s)", f.Reason, f.Code)
}

// judge returns nil if an answer is one envelope with one body, which holds the wanted element and nothing else; a
// *faultError if the body holds just that; or what is wrong with the answer.
func judge(answer []byte, want xml.Name) error {
	if !utf8.Valid(answer) { // not all of which the decoder notices
		return errors.New("its answer is not UTF-8")
	}
	d := xml.NewTokenDecoder(&strict{in: xml.NewDecoder(bytes.NewReader(answer))})
	var e envelope
	err := d.Decode(&e)
	if err == nil {
		err = toEnd(d)
	}
	if err != nil {
		return fmt.Errorf("its answer is no SOAP message: %w", err)
	}
	if len(e.Bodies) != 1 || len(e.Headers) > 1 || len(e.Others) > 0 || !blank(e.Text) {
		return fmt.Errorf(
			"its answer is not an envelope with one body: it has %d, and beside them %v",
			len(e.Bodies),
			e.Others,
		)
	}
	b := e.Bodies[0]
	switch {
	case !blank(b.Text) || len(b.Faults)+len(b.Others) != 1:
		return fmt.Errorf(
			"its answer's body does not hold one element: it has %d, and %d faults",
			len(b.Others),
			len(b.Faults),
		)
	case len(b.Faults) == 1:
		return &b.Faults[0]
	case b.Others[0].XMLName != want:
		return fmt.Errorf("its answer is a %v, not a %s", b.Others[0].XMLName, want.Local)
	}
	return nil
}

// toEnd reads what follows the element: nothing but white space and comments, or it fails.
func toEnd(d *xml.Decoder) error {
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// deepest is how deep the elements of an answer may be nested.
const deepest = 100

// strict reads a document of one element, without what SOAP forbids, and a decoder would overlook: a DTD, processing
// instructions, and anything around the element.
type strict struct {
	in    *xml.Decoder
	begun bool // it has had a token
	roots int
	depth int
}

// Token implements xml.TokenReader.
func (s *strict) Token() (xml.Token, error) {
	token, err := s.in.RawToken()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case xml.Directive:
		err = errors.New("it has a DTD")
	case xml.ProcInst:
		if s.begun || t.Target != "xml" {
			err = fmt.Errorf("it has a processing instruction %s", t.Target)
		}
	case xml.CharData:
		if s.depth == 0 && !blank(string(t)) {
			err = errors.New("it has text around its element")
		}
	case xml.StartElement:
		if s.depth == 0 {
			s.roots++
		}
		if s.depth++; s.depth > deepest || s.roots > 1 {
			err = fmt.Errorf("it has more than one element, or elements nested more than %d deep", deepest)
		}
	case xml.EndElement:
		s.depth--
	}
	if err != nil {
		return nil, err
	}
	s.begun = true
	return token, nil
}

// blank reports whether there is nothing but white space, as XML defines it.
func blank(text string) bool { return strings.Trim(text, " \t\r\n") == "" }
