// Package photo is the plugin that makes smaller pictures and thumbnails of photos.
//
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set sizes=big=2048x2048,icon=64x64:fill
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set name='{folder}/{stem}-{size}.{ext}'
//	ledgerd run photo logo.png --with out_dir=/srv/thumbs --set format=png
//
// # What it reads
//
// JPEG, PNG, GIF, WebP, TIFF and BMP; the first bytes of a file decide, not its name. From a folder it takes files
// of these names. Of an animated GIF it takes the first frame, on the whole of its screen. Not read are an
// animated WebP, HEIC, AVIF, JPEG XL, JPEG 2000, PSD, raw photos, TIFFs with separate colour planes, and some more
// sorts. Such an item fails as unsupported, and the error names the sort.
//
// A JPEG that lacks its end mark and nothing else is read, and the output has a note. If it comes in several scans
// (progressive, or a scan for each colour), they must give every coefficient down to its last bit: after a cut between
// scans a picture without details or colours would be left. All else that ends early fails as truncated.
//
// The header is read before anything is decoded: what has more than max_pixels or max_bytes is refused,
// and so is a picture of more than 65,535 pixels a side. A picture that still keeps a decoder busy,
// such as a JPEG of thousands of scans, ends with the time of the attempt.
//
// # What it makes
//
// One JPEG or PNG for each of sizes, NAME=WIDTHxHEIGHT or NAME=WIDTHxHEIGHT:MODE:
//
//	fit   the whole picture, no larger than the size (default)
//	fill  the size filled, what stands over cut off evenly
//	crop  the size cut out of the middle, not scaled
//
// A picture is never enlarged: one that is smaller stays as it is (fit), or is cut to the shape of the
// size (fill). EXIF gives the orientation; the picture is turned the right way up. Transparent parts
// become white in a JPEG. 16 bits become 8.
//
// Nothing of the metadata is left: no place, no camera, no comments, and no colour profile: colours of a
// wide gamut look paler.
//
// Scaling is golang.org/x/image's kernel of Catmull and Rom, over the values as they are stored
// (gamma-encoded), as nearly all programs do. A size may be made of a larger one that has at least
// twice its pixels each way. The same picture at the same path with the same settings gives the same
// bytes, on machines of the same kind.
//
// # Files
//
// name gives the file below out_dir for a size: {stem} and {ext} of the file, {size}, {folder} (the
// last folder of the path), {hash} (16 digits, of the whole path). Nothing is written elsewhere.
//
// A file appears under its name when it is complete and on the disk. It begins with a comment that has hashes of its
// path, content and settings. A file with the same comment is up to date and left alone; its time does not count. If
// all files are up to date, the item is skipped. A file that was not made of this picture is never written over, also
// when two pictures of the same name are worked at the same time. Files that this plugin has made are not made smaller
// again when they lie in a folder of pictures.
//
// # Memory
//
// A file is read as a whole, so that what is hashed is what is decoded. A picture counts for its file, 16
// bytes a pixel (TIFF: 32), 20 a pixel of its largest size, and 8 to 40 MiB. It takes less, a usual JPEG a
// quarter of that. Pictures start as long as they all fit into the config's memory, and one that does not
// fit at all is worked alone. One picture a core is worked at a time.
//
// A picture is given up soon after its lease was lost or ledgerd stops. The exceptions are reading its
// file, and a decoder's call that does not read: seconds, with 100 megapixels of WebP.
//
// # Payload, config, output
//
// They are [In], [Config] and [Out]; "ledgerd run photo --help" shows their fields.
//
// # Codes
//
// These last until the file or the payload is another, and are not tried again:
//
//	not_found not_a_file  there is no such file; it is a directory, pipe, device
//	foreign_link          the path leads through a link whose owner does not own its target
//	not_an_image          it is of no format that is read
//	unsupported           it is of a format, or a sort of one, that is not read; the error names it
//	truncated damaged     it ends early; it is not what its format asks for
//	too_large             more bytes or pixels than allowed
//	bad_name              name gives no file below out_dir, or two sizes the same
//	name_taken            the file is there and was not made of this picture
//
// These may be gone the next time, and are tried again:
//
//	cannot_read cannot_write  an error of the system
package photo
