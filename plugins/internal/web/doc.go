// Package web is what plugins have in common that ask servers of strangers for something over HTTP:
// which URLs can be asked for, which addresses may be dialled, where redirects lead, and what an
// error is called. A plugin that uses it makes the same promises about private addresses and the
// same codes as all others.
package web
