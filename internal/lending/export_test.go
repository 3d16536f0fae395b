package lending

const MaxGranted = maxGranted
