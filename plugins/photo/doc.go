// Package photo is the plugin that makes smaller pictures and thumbnails of photos.
package photo
