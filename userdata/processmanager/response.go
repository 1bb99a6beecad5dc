package processmanager

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// envelope is a SOAP envelope. Others and Text collect everything in it except the header and the body.
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

// faultError is a failure that the server reported.
type faultError struct {
	Code   string `xml:"faultcode"`
	Reason string `xml:"faultstring"`
}

func (f *faultError) Error() string {
	return fmt.Sprintf("it reported a fault: %s (%s)", f.Reason, f.Code)
}

// check returns nil if the response is one envelope with one body that holds only the wanted element, and a
// *faultError if the body holds only a fault. Any other error says what is wrong with the response.
func check(response []byte, want xml.Name) error {
	if !utf8.Valid(response) { // the decoder does not notice this everywhere
		return errors.New("its response is not UTF-8")
	}
	d := xml.NewTokenDecoder(&strictReader{in: xml.NewDecoder(bytes.NewReader(response))})
	var e envelope
	err := d.Decode(&e)
	if err == nil {
		err = expectEnd(d)
	}
	if err != nil {
		return fmt.Errorf("its response is no SOAP message: %w", err)
	}
	if len(e.Bodies) != 1 || len(e.Headers) > 1 || len(e.Others) > 0 || !blank(e.Text) {
		return fmt.Errorf("its response is not an envelope with one body: it has %d bodies and other elements %v",
			len(e.Bodies), e.Others)
	}
	b := e.Bodies[0]
	switch {
	case !blank(b.Text) || len(b.Faults)+len(b.Others) != 1:
		return fmt.Errorf("the body of its response does not hold one element: it has %d elements and %d faults",
			len(b.Others), len(b.Faults))
	case len(b.Faults) == 1:
		return &b.Faults[0]
	case b.Others[0].XMLName != want:
		return fmt.Errorf("its response is a %v, not a %s", b.Others[0].XMLName, want.Local)
	}
	return nil
}

// expectEnd fails unless only white space and comments follow the element.
func expectEnd(d *xml.Decoder) error {
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// maxDepth is how deep the elements of a response may be nested.
const maxDepth = 100

// strictReader reads a document of one element. It refuses what SOAP forbids but a decoder accepts: a DTD,
// processing instructions, and text or elements outside the one element.
type strictReader struct {
	in    *xml.Decoder
	begun bool // whether a token was read
	roots int
	depth int
}

func (s *strictReader) Token() (xml.Token, error) {
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
		if s.depth++; s.depth > maxDepth || s.roots > 1 {
			err = fmt.Errorf("it has more than one element, or elements nested more than %d deep", maxDepth)
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

// blank reports whether the text is only white space as XML defines it.
func blank(text string) bool { return strings.Trim(text, " \t\r\n") == "" }
