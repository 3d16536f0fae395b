// Command ledgerd-plugin-mail is the mail plugin as a program of its own.
package main

import (
	"github.com/ledgerd/ledgerd/plugins/mail"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() { sdk.Main(mail.Plugin()) }
