// Package photo is the plugin that makes smaller pictures and thumbnails of photos.
//
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set sizes=big=2048x2048,icon=64x64:fill
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set name='{folder}/{stem}-{size}.{ext}'
//	ledgerd run photo logo.png --with out_dir=/srv/thumbs --set format=png
//
// # What it reads
//
// JPEG, PNG, GIF, WebP, TIFF and BMP; the first bytes of a file decide, not its name. From a folder it takes files of
// these names. Of an animated GIF it reads the first frame, on the whole of its screen. It does not read animated
// WebP, HEIC, AVIF, JPEG XL, JPEG 2000, PSD, raw photos, TIFFs with separate colour planes, and some other types. Such
// an item fails as unsupported, and the error names the type.
//
// A file that ends early fails as truncated, also a JPEG that lacks only its end mark.
//
// The header is read before anything is decoded. A picture with more than max_pixels, max_bytes or 65,535 pixels a
// side is refused. If decoding still takes very long, as for a JPEG of thousands of scans, the timeout of the attempt
// ends it.
//
// # What it makes
//
// One JPEG or PNG for each of sizes, NAME=WIDTHxHEIGHT or NAME=WIDTHxHEIGHT:MODE:
//
//	fit   the whole picture, no larger than the size (default)
//	fill  the size filled, what stands over cut off evenly
//	crop  the size cut out of the middle, not scaled
//
// A picture is never enlarged: one that is smaller stays as it is (fit), or is cut to the shape of the size (fill).
// EXIF gives the orientation; the picture is turned the right way up. Transparent parts become white in a JPEG. 16
// bits become 8.
//
// All metadata is removed: place, camera, comments, and also the colour profile, so colours of a wide gamut look
// paler.
//
// Scaling is golang.org/x/image's kernel of Catmull and Rom, over the values as they are stored (gamma-encoded), as
// nearly all programs do. A size may be made of a larger one that has at least twice its pixels each way. The same
// picture at the same path with the same settings gives the same bytes, on machines of the same kind.
//
// # Files
//
// name gives the file below out_dir for a size: {stem} and {ext} of the file, {size}, {folder} (the last folder of the
// path), {hash} (16 digits, of the whole path). Nothing is written elsewhere.
//
// A file appears under its name when it is complete and on the disk. It begins with a comment that has hashes of the
// picture's path, content and settings. A file with the same comment is up to date and stays as it is; its time does
// not count. If all files are up to date, the item is skipped. A file that was not made of this picture is never
// overwritten, even if two pictures of the same name are worked at the same time. Files that this plugin has made are
// skipped if they lie in a folder of pictures.
//
// # Memory
//
// A file is read as a whole, so that the same bytes are hashed and decoded. The memory of a picture is estimated as
// its file, 16 bytes a pixel (TIFF: 32), 20 a pixel of its largest size, and 8 to 40 MiB. It needs less, a usual JPEG
// a quarter of that. Pictures begin while all of them fit into the config's memory. One that does not fit is worked
// alone. One picture a core is worked at a time.
//
// Work on a picture ends soon after its lease was lost or ledgerd stops. Two steps are not interrupted: reading the
// file, and a decoder's call that does not read. That takes seconds for 100 megapixels of WebP.
//
// # Payload, config, output
//
// They are [In], [Config] and [Out]; "ledgerd run photo --help" shows their fields.
//
// # Codes
//
// These last until the file or the payload changes, and are not tried again:
//
//	not_found not_a_file  there is no such file; it is a directory, pipe, device
//	permission            the user of the plugin may not read it
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
//	changed                   the file was changed while it was read
package photo
