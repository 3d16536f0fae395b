#!/bin/sh
# The job, the same on every machine: tell each user once that the report of a month is ready.
exec ledgerd run mail --scope "report-$1" --from users.csv --key user \
    --set subject="Your report" --set text="It is ready." \
    --with server="${SMTP:-127.0.0.1:2525}" --with from=reports@example.com --with tls=none
