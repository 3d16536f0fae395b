package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// definition is what New and NewBatch make of a function: the one place that knows its types.
type definition interface {
	shapes() (config, input, output *shape)
	batched() bool // made by NewBatch
	// configure checks a config and, unless validateOnly, opens it.
	configure(ctx context.Context, config []byte, secrets map[string]string, validateOnly bool) (instance, []*wire.Problem)
}

// instance is a plugin with a config in use.
type instance interface {
	// work calls the function, once for each task or with NewBatch once for all, and settles each task.
	work(tasks []*task)
	check(ctx context.Context) error
	// emits are the kinds that this config permits to emit, beside those of the plugin.
	emits() []string
	close() error
}

// The methods that a config may have.
type (
	validator interface{ Validate() error }
	opener    interface{ Open(context.Context) error }
	checker   interface{ Check(context.Context) error }
	closer    interface{ Close() error }
	emitter   interface{ Emits() []string }
)

// typed is a definition over the types of one function.
type typed[C, I, O any] struct {
	one    func(context.Context, *C, Item[I]) (O, error)
	many   func(context.Context, *C, *Batch[I, O]) error
	config *shape
	input  *shape
	output *shape
}

func define[C, I, O any](name string,
	one func(context.Context, *C, Item[I]) (O, error),
	many func(context.Context, *C, *Batch[I, O]) error,
) definition {
	d := &typed[C, I, O]{one: one, many: many}
	var err1, err2, err3 error
	d.config, err1 = shapeOf(reflect.TypeFor[C](), roleConfig)
	d.input, err2 = shapeOf(reflect.TypeFor[I](), rolePayload)
	d.output, err3 = shapeOf(reflect.TypeFor[O](), roleOutput)
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(fmt.Sprintf("sdk: plugin %s: %v", name, err))
	}
	return d
}

func (d *typed[C, I, O]) shapes() (config, input, output *shape) { return d.config, d.input, d.output }
func (d *typed[C, I, O]) batched() bool                          { return d.many != nil }

func (d *typed[C, I, O]) configure(ctx context.Context, config []byte, secrets map[string]string,
	validateOnly bool) (instance, []*wire.Problem) {
	cfg := new(C)
	whole, err := d.config.schema.Merge(config, secrets)
	if err == nil {
		err = guard("UnmarshalJSON", func() error { return d.config.decode(whole, cfg) })
	}
	if err == nil {
		if v, ok := any(cfg).(validator); ok {
			err = guard("Validate", v.Validate)
		}
	}
	if err == nil && !validateOnly {
		if o, ok := any(cfg).(opener); ok {
			err = guard("Open", func() error { return o.Open(ctx) })
		}
	}
	o := &opened[C, I, O]{typed: d, cfg: cfg}
	if e, ok := any(cfg).(emitter); ok && err == nil && !validateOnly {
		if err = guard("Emits", func() error { o.permitted = e.Emits(); return nil }); err != nil {
			_ = o.close() // it was opened, and is not used
		}
	}
	if err != nil {
		return nil, problemsOf(err)
	}
	return o, nil
}

func problemsOf(err error) []*wire.Problem {
	var list *settings.Error
	if !errors.As(err, &list) {
		return []*wire.Problem{{Message: cleanText(err.Error(), wire.MaxError)}}
	}
	problems := make([]*wire.Problem, len(list.Problems))
	for i, p := range list.Problems {
		text := settings.Problem{Message: p.Message, Hint: p.Hint}.String()
		problems[i] = &wire.Problem{Field: cleanText(p.Field, wire.MaxError), Message: cleanText(text, wire.MaxError)}
	}
	return problems
}

// guard calls a method of the config and turns a panic into an error.
func guard(name string, call func() error) error {
	err := caught(call)
	if p, is := err.(*panicError); is {
		return fmt.Errorf("panic in %s: %v\n%s", name, p.value, p.stack)
	}
	return err
}

// caught calls code of the plugin's author and turns a panic into a *panicError. Error of the returned error may panic,
// too: a nil pointer that is returned as an error is not nil.
func caught(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	if err = call(); err != nil {
		_ = err.Error()
	}
	return err
}

// opened implements instance.
type opened[C, I, O any] struct {
	*typed[C, I, O]
	cfg       *C
	permitted []string // kinds to emit
}

func (o *opened[C, I, O]) check(ctx context.Context) error {
	if c, ok := any(o.cfg).(checker); ok {
		return guard("Check", func() error { return c.Check(ctx) })
	}
	return nil
}

func (o *opened[C, I, O]) emits() []string { return o.permitted }

func (o *opened[C, I, O]) close() error {
	if c, ok := any(o.cfg).(closer); ok {
		return guard("Close", c.Close)
	}
	return nil
}

func (o *opened[C, I, O]) work(tasks []*task) {
	if o.many != nil {
		o.workBatch(tasks)
		return
	}
	for _, t := range tasks {
		if it, ok := o.item(t); ok {
			o.workOne(t, it)
		}
	}
}

// item decodes the payload. If it does not fit, the task fails for good, and the result is false.
func (o *opened[C, I, O]) item(t *task) (Item[I], bool) {
	w := t.item
	it := Item[I]{
		ID: w.Id, Kind: w.Kind, Scope: w.Scope, Key: w.Key,
		Attempt: w.Attempt, IdempotencyKey: w.IdempotencyKey, Log: t.logger(), task: t,
	}
	if err := caught(func() error { return o.input.decode(w.Payload, &it.Payload) }); err != nil {
		t.settle(nil, Permanent(Code("payload", fmt.Errorf("payload: %w", err))))
		return it, false
	}
	return it, true
}

// workOne calls the function. The task is settled also if it panics or ends its goroutine.
func (o *opened[C, I, O]) workOne(t *task, it Item[I]) {
	var out O
	var err error
	returned := false
	defer func() {
		if !returned {
			err = panicked(recover())
		}
		settle(t, &out, err)
	}()
	out, err = o.one(t.ctx, o.cfg, it)
	returned = true
}

// panicked is the error of a function that did not return; value is nil if it ended its
// goroutine with runtime.Goexit.
func panicked(value any) error {
	if value == nil {
		value = "the function ended its goroutine"
	}
	return &panicError{value: value, stack: debug.Stack()}
}

// settle ends a task with the return values of the function. An output that is null as JSON counts as no output. So
// does an output beside an error, if it is zero or cannot be sent.
func settle[O any](t *task, out *O, err error) {
	if err != nil && reflect.ValueOf(out).Elem().IsZero() {
		t.settle(nil, err)
		return
	}
	var raw []byte
	failed := caught(func() (err error) { raw, err = json.Marshal(out); return err })
	switch {
	case err != nil && (failed != nil || !utf8.Valid(raw) || len(raw) > wire.MaxOutput):
		t.settle(nil, err) // the error decides; an output that cannot be sent is left out
	case failed != nil:
		t.settle(nil, Permanent(Code("output", fmt.Errorf("the result cannot be written as JSON: %w", failed))))
	case !utf8.Valid(raw): // a json.RawMessage is taken as it is
		t.settle(nil, Permanent(Code("output", errors.New("output is not UTF-8"))))
	case len(raw) > wire.MaxOutput:
		t.settle(nil, Permanent(Code("output", fmt.Errorf(
			"result too large: output has %d bytes, at most %d; write it to a file and return its path",
			len(raw), wire.MaxOutput))))
	case string(raw) == "null":
		t.settle(nil, err)
	default:
		t.settle(raw, err)
	}
}

// workBatch calls the function with all tasks whose payload fits.
func (o *opened[C, I, O]) workBatch(tasks []*task) {
	b := &Batch[I, O]{Items: make([]Item[I], 0, len(tasks))}
	contexts := make([]context.Context, 0, len(tasks))
	for _, t := range tasks {
		if it, ok := o.item(t); ok {
			b.Items, contexts = append(b.Items, it), append(contexts, t.ctx)
		}
	}
	if len(b.Items) == 0 {
		return
	}
	ctx, settled, stop := batchContext(b.Items[0].task.item.TimeoutMs, contexts)
	defer stop()
	b.settle = func(i int, out O, err error) {
		settle(b.Items[i].task, &out, err)
		settled(i)
	}

	var err error
	returned := false
	defer func() {
		switch {
		case !returned:
			err = panicked(recover())
		case err == nil:
			err = Code("unsettled", errors.New("the function returned without having settled the item"))
		}
		for _, it := range b.Items {
			it.task.settle(nil, err)
		}
	}()
	err = o.many(ctx, o.cfg, b)
	returned = true
}
