package filecsv

// plain is the payload with the defaults that the SDK fills in.
func plain() In {
	return In{
		Delimiter: "auto", Encoding: "auto", Header: "auto", Quotes: "yes", MaxBadRows: -1,
		DateFormats: []string{"YYYY-MM-DD", "YYYY-MM-DD hh:mm:ss", "YYYY-MM-DDThh:mm:ssZ"},
	}
}

func plainOptions() options {
	return options{maxBytes: 16 << 30, spillRows: spillRows, progress: func(int64) {}}
}
