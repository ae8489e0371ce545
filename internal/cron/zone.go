package cron

import (
	"strings"
	"time"
	_ "time/tzdata" // the program runs where no zones are installed

	"github.com/berthml/berth"
)

// Zone is the time zone of a name: one of the IANA database, or Windows' as Azure's clients send
// them. Empty is UTC.
func Zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	iana := name
	if z, ok := windows[strings.ToLower(name)]; ok {
		iana = z
	}
	if strings.EqualFold(iana, "local") { // that of the server, which a user cannot mean
		iana = ""
	}
	loc, err := time.LoadLocation(iana)
	if err != nil || iana == "" {
		return nil, berth.Errorf(berth.Invalid, "unknown time zone %q; use a name such as Europe/Berlin or W. Europe Standard Time", name)
	}
	return loc, nil
}

// windows are the zones that Windows calls otherwise, after Unicode's list of the territory 001.
var windows = map[string]string{
	"utc":                             "UTC",
	"coordinated universal time":      "UTC",
	"gmt standard time":               "Europe/London",
	"greenwich standard time":         "Atlantic/Reykjavik",
	"w. europe standard time":         "Europe/Berlin",
	"central europe standard time":    "Europe/Budapest",
	"central european standard time":  "Europe/Warsaw",
	"romance standard time":           "Europe/Paris",
	"e. europe standard time":         "Europe/Chisinau",
	"fle standard time":               "Europe/Kyiv",
	"gtb standard time":               "Europe/Bucharest",
	"turkey standard time":            "Europe/Istanbul",
	"russian standard time":           "Europe/Moscow",
	"israel standard time":            "Asia/Jerusalem",
	"egypt standard time":             "Africa/Cairo",
	"south africa standard time":      "Africa/Johannesburg",
	"w. central africa standard time": "Africa/Lagos",
	"e. africa standard time":         "Africa/Nairobi",
	"morocco standard time":           "Africa/Casablanca",
	"arab standard time":              "Asia/Riyadh",
	"arabian standard time":           "Asia/Dubai",
	"iran standard time":              "Asia/Tehran",
	"pakistan standard time":          "Asia/Karachi",
	"india standard time":             "Asia/Kolkata",
	"sri lanka standard time":         "Asia/Colombo",
	"bangladesh standard time":        "Asia/Dhaka",
	"se asia standard time":           "Asia/Bangkok",
	"china standard time":             "Asia/Shanghai",
	"singapore standard time":         "Asia/Singapore",
	"taipei standard time":            "Asia/Taipei",
	"w. australia standard time":      "Australia/Perth",
	"tokyo standard time":             "Asia/Tokyo",
	"korea standard time":             "Asia/Seoul",
	"cen. australia standard time":    "Australia/Adelaide",
	"aus central standard time":       "Australia/Darwin",
	"aus eastern standard time":       "Australia/Sydney",
	"e. australia standard time":      "Australia/Brisbane",
	"tasmania standard time":          "Australia/Hobart",
	"new zealand standard time":       "Pacific/Auckland",
	"hawaiian standard time":          "Pacific/Honolulu",
	"alaskan standard time":           "America/Anchorage",
	"pacific standard time":           "America/Los_Angeles",
	"us mountain standard time":       "America/Phoenix",
	"mountain standard time":          "America/Denver",
	"central standard time":           "America/Chicago",
	"central standard time (mexico)":  "America/Mexico_City",
	"canada central standard time":    "America/Regina",
	"central america standard time":   "America/Guatemala",
	"eastern standard time":           "America/New_York",
	"us eastern standard time":        "America/Indianapolis",
	"sa pacific standard time":        "America/Bogota",
	"sa western standard time":        "America/La_Paz",
	"venezuela standard time":         "America/Caracas",
	"pacific sa standard time":        "America/Santiago",
	"atlantic standard time":          "America/Halifax",
	"newfoundland standard time":      "America/St_Johns",
	"argentina standard time":         "America/Buenos_Aires",
	"e. south america standard time":  "America/Sao_Paulo",
	"sa eastern standard time":        "America/Cayenne",
	"greenland standard time":         "America/Nuuk",
	"azores standard time":            "Atlantic/Azores",
	"cape verde standard time":        "Atlantic/Cape_Verde",
}
