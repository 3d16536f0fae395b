// Package photo is the plugin that makes smaller pictures and thumbnails of photos.
//
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set sizes=big=2048x2048,icon=64x64:fill
//	ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set name='{folder}/{stem}-{size}.{ext}'
//	ledgerd run photo logo.png --with out_dir=/srv/thumbs --set format=png
//
// # What it reads
//
// JPEG, PNG, GIF, WebP, TIFF and BMP; a file is known by how it begins, not by its name. From a
// folder it takes files of these names. Of an animated GIF it takes the first frame, on the whole of its screen.
// An animated WebP is not read, nor are HEIC, AVIF, JPEG XL, JPEG 2000, PSD, raw photos, TIFFs whose colours are in
// planes of their own, and some more sorts: such an item fails as unsupported, and the error names the sort.
//
// The header is read before anything is decoded: what has more than max_pixels or max_bytes is refused,
// and so is a picture of more than 65,535 pixels a side. What keeps a decoder busy all the same, as a
// JPEG of thousands of scans does, ends with the time of the attempt.
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
// size (fill). It is turned the right way up as EXIF says. What is transparent becomes white in a JPEG. 16
// bits become 8.
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
// name says which file below out_dir a size is: {stem} and {ext} of the file, {size}, {folder} (the
// last folder of the path), {hash} (16 digits, of the whole path). Nothing is written elsewhere.
//
// A file appears under its name when it is complete and on the disk. It begins with a comment that says, as
// hashes, of which path, content and settings it was made. A file whose comment says the same is up to
// date and left alone, whatever its time; if all are, the item is skipped. A file that was not made of
// this picture is never written over, also when two pictures of the same name are worked at the same time;
// and what this plugin has made is not made smaller once more when it lies in a folder of pictures.
//
// # Memory
//
// A file is read as a whole, so that what is hashed is what is decoded. A picture counts for its file, 16
// bytes a pixel (TIFF: 32), 20 a pixel of its largest size, and 8 to 40 MiB; it takes less, a usual JPEG a
// quarter of that. Pictures start as long as they all fit into the config's memory, and one that does not
// fit at all is worked alone. One picture a core is worked at a time.
//
// A picture is given up soon after its lease was lost or ledgerd stops, except while its file is read, and
// in the middle of what one call of a decoder does without reading: seconds, with 100 megapixels of WebP.
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
//	foreign_link          the path leads through a link of somebody who does not own what it leads to
//	not_an_image          it is of no format that is read
//	unsupported           it is of a format, or a sort of one, that is not read; the error names it
//	truncated damaged     it ends early; it is not what its format asks for
//	too_large             more bytes or pixels than allowed
//	bad_name              name gives no file below out_dir, or two sizes the same
//	name_taken            the file is there and was not made of this picture
//
// These may be gone the next time, and are tried again:
//
//	cannot_read cannot_write  the system says no
package photo
