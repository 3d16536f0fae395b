// make generate: plugin.proto as text
module.exports = `
syntax = "proto3";

// The protocol between ledgerd and a plugin's process, version 1.
//
// Within version 1 fields and messages are only added; what an older side does not know it
// ignores. New behaviour that both sides must know of is named in \`features\`. The handshake
// negotiates the version: it changes only for what breaks.
package ledgerd.plugin.v1;

option go_package = "github.com/ledgerd/ledgerd/sdk/wire";

service Plugin {
  // Describe describes what the plugin is. It has no effects, may be called before Configure and
  // gives the same answer every time.
  rpc Describe(DescribeRequest) returns (DescribeResponse);
  // Configure checks a config and, unless validate_only, puts it to use. It is put to use
  // once in the life of a process; another config takes another process.
  rpc Configure(ConfigureRequest) returns (ConfigureResponse);
  // Process is opened once, after Configure. All items of the process travel on it.
  rpc Process(stream HostMessage) returns (stream PluginMessage);
  // CheckHealth asks the plugin's own check, for people: is what it depends on reachable?
  // Whether the process answers at all is asked of grpc.health.v1.Health.
  rpc CheckHealth(CheckHealthRequest) returns (CheckHealthResponse);
  // Drain ends the work: items not begun are handed back at once, begun ones get the time
  // given, then they are told to stop. All results are on the stream before it answers.
  rpc Drain(DrainRequest) returns (DrainResponse);
}

message DescribeRequest {
  string host_version = 1;
  repeated string host_features = 2;
}

message DescribeResponse {
  string name = 1;     // [a-z0-9][a-z0-9-]{0,63}
  string version = 2;  // semantic version
  string doc = 3;      // Markdown; the first line is the summary
  string sdk = 4;      // "go/0.1.0"
  repeated string features = 5;  // "previous": items bring what their last completed round put out

  repeated string match = 10;  // globs over base names, for folders of files
  repeated string emits = 11;  // kinds that results may emit
  OnLost on_lost = 12;         // defaults of the kind's policy from here …
  int64 timeout_ms = 13;       // 0: none
  int32 max_failures = 14;     // 0: the ledger's default … to here
  int32 concurrency = 15;      // items worked at a time; with max_batch: batches
  int32 max_batch = 16;        // 0: items are worked one by one
  int64 max_wait_ms = 17;      // how long a batch waits to be filled

  bytes config_schema = 20;  // JSON Schema, draft 2020-12
  bytes input_schema = 21;   // of the payload
  bytes output_schema = 22;
  Input input = 23;              // unset: the payload has no input field
  repeated string secrets = 24;  // config fields that travel in ConfigureRequest.secrets; dots for nesting
  repeated Example examples = 25;
}

enum OnLost {
  ON_LOST_REPEAT = 0;
  ON_LOST_DOUBT = 1;
}

// Input names the payload field that the command line fills and makes the item's key, and those
// that it fills with what it knows of a file; empty: none.
message Input {
  string field = 1;
  string type = 2;      // file, url or line
  string modified = 3;  // when the file was last changed, RFC 3339 in UTC
  string owner = 4;     // whose it is, the name of a user or a number
}

message Example {
  string doc = 1;
  bytes payload = 2;
  bytes output = 3;  // empty: only that the item is done
}

message ConfigureRequest {
  bytes config = 1;  // JSON object, without the secrets
  map<string, string> secrets = 2;
  bool validate_only = 3;
  int32 concurrency = 4;  // overrides the plugin's; 0: the plugin's
  int64 progress_ms = 5;  // least time between two reports of an item; 0: a second; -1: every report
}

message ConfigureResponse {
  repeated Problem problems = 1;  // none: accepted
  repeated string emits = 2;  // kinds that results may emit with this config, beside those of DescribeResponse
}

// Problem is a config value that is refused.
message Problem {
  string field = 1;  // dots for nesting; empty: the config as a whole
  string message = 2;
}

// HostMessage carries any number of each.
message HostMessage {
  repeated Item items = 1;  // never more than the credits in hand
  repeated Cancel cancels = 2;
}

message Item {
  int64 id = 1;
  int64 attempt = 2;  // from 1, never used again for this item: (id, attempt) names it on the stream
  string kind = 3;
  string scope = 4;
  string key = 5;
  string idempotency_key = 6;
  bytes payload = 7;
  bytes lock_id = 8;     // token of the lease; the result gives it back
  int64 timeout_ms = 9;  // for the work, from its beginning; 0: none
  bytes previous = 10;   // with the feature "previous": output of the last completed round; empty: none
  // W3C trace context, for spans of the work: of the span of the attempt or, if ledgerd records no spans, of the
  // program that added the item. Empty: none.
  string traceparent = 11;  // 55 bytes
  string tracestate = 12;   // at most 512 bytes
}

message Cancel {
  int64 id = 1;
  int64 attempt = 2;
  Reason reason = 3;

  enum Reason {
    REASON_UNSPECIFIED = 0;
    REASON_CANCELLED = 1;   // by a person or a program
    REASON_LEASE_LOST = 2;  // the result will be refused
    REASON_STOPPING = 3;    // ledgerd stops
    REASON_TIMEOUT = 4;     // the host's own limit is over
  }
}

// PluginMessage carries any number of each. Credits are how many items more the host may
// send; the credit of an item is granted again with its result or later.
message PluginMessage {
  int32 credits = 1;
  repeated Result results = 2;
  repeated Progress progress = 3;
}

// Result ends an attempt. There is exactly one for every item received.
message Result {
  int64 id = 1;
  int64 attempt = 2;
  bytes lock_id = 3;
  Outcome outcome = 4;
  bool final = 5;      // with FAILED: trying again cannot help
  int64 delay_ms = 6;  // with FAILED: in place of the backoff, unless 0; with SNOOZED: for how long
  string code = 7;     // class of the error, [a-z0-9_]{1,64}
  string error = 8;    // text of the error, or the reason
  bytes output = 9;    // JSON; kept whatever the outcome
  string log = 10;     // tail of what the item logged
  repeated Child emit = 11;  // only with DONE and SKIPPED
  Ending ending = 12;
  int32 at_most = 13;  // with SNOOZED and a code: so many in a row are no failure, further ones are; 0: any number

  enum Outcome {
    OUTCOME_UNSPECIFIED = 0;
    OUTCOME_DONE = 1;
    OUTCOME_SKIPPED = 2;    // nothing to do; completed
    OUTCOME_FAILED = 3;     // tried again by the kind's policy, unless final
    OUTCOME_SNOOZED = 4;    // asked for again later; not a failure
    OUTCOME_UNKNOWN = 5;    // in doubt: may or may not have taken effect
    OUTCOME_RELEASED = 6;   // handed back, because of a Drain or a Cancel with STOPPING or LEASE_LOST
    OUTCOME_CANCELLED = 7;  // given up because of a Cancel with CANCELLED
  }

  // Ending reports whether the function itself reported the outcome. Where it did not, a kind
  // whose effects must not be repeated is in doubt: the host decides.
  enum Ending {
    ENDING_RETURNED = 0;
    ENDING_PANICKED = 1;
    ENDING_TIMED_OUT = 2;
  }
}

// Child is an item to be added in the transaction that records the result.
message Child {
  string kind = 1;
  string scope = 2;
  string key = 3;
  string fingerprint = 4;
  bytes payload = 5;
  int64 due_us = 6;  // microseconds since 1970 UTC; 0: at once
  sint32 priority = 7;
}

message Progress {
  int64 id = 1;
  int64 attempt = 2;
  int64 done = 3;
  int64 total = 4;  // 0: unknown
  string unit = 5;
}

message CheckHealthRequest {}

message CheckHealthResponse {
  string problem = 1;  // empty: healthy
}

message DrainRequest {
  int64 grace_ms = 1;
}

message DrainResponse {
  repeated int64 unfinished = 1;  // ids of items whose function did not return
}
`
