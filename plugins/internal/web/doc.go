// Package web is for plugins that ask servers of strangers over HTTP: which URLs can be asked for,
// which addresses may be dialled, where redirects lead, and what an error is called. A plugin that
// uses it makes the same promises about private addresses and the same codes as all others.
package web
