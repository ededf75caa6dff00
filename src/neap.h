/* neap: activation checkpointing for LuaJIT. The whole public C API.
 *
 * Preprocessed with NEAP_CDEF defined, this file is the cdef that LuaJIT reads: it is never written
 * twice, so it uses only what LuaJIT's parser knows, and constants are enums, not macros.
 *
 * Conventions. Every fallible function returns int: 0 (NEAP_OK) or a negative NEAP_ERR_*; the text,
 * with numbers, is neap_last_error(). On an error nothing has changed. Functions that return a
 * double return a handle >= 1, or the negative error. Elements are n_…, bytes …_bytes. The library
 * never prints, never exits and never calls Lua. One thread drives it; kernels use OpenMP inside.
 */
#ifndef NEAP_H
#define NEAP_H

#ifdef NEAP_CDEF
#define NEAP_API
#else
#include <stddef.h>
#include <stdint.h>
#define NEAP_API __attribute__((visibility("default")))
#endif

/* ---- version and errors ------------------------------------------------------------------- */

enum { NEAP_VERSION_MAJOR = 0, NEAP_VERSION_MINOR = 1, NEAP_VERSION_PATCH = 0, NEAP_ABI = 1 };

/* X(NAME, code, short name) */
/* clang-format off */
#define NEAP_ERRORS(X)                          \
  X(INVALID, -1, "invalid argument")            \
  X(SHAPE, -2, "shape mismatch")                \
  X(OVERFLOW, -3, "size overflow")              \
  X(MEMORY, -4, "out of memory")                \
  X(STALE, -5, "stale handle")                  \
  X(DEVICE, -6, "device")                       \
  X(DTYPE, -7, "dtype")                         \
  X(STATE, -8, "wrong state")                   \
  X(UNSUPPORTED, -9, "unsupported")             \
  X(NOT_FOUND, -10, "not found")                \
  X(DUPLICATE, -11, "duplicate")                \
  X(SEGMENT, -12, "invalid segment")            \
  X(SEGMENT_COUNT, -13, "invalid segment count") \
  X(PLAN, -14, "invalid plan")                  \
  X(INFEASIBLE, -15, "does not fit")            \
  X(MODIFIED, -16, "modified in place")         \
  X(GRAPH, -17, "graph")                        \
  X(RECOMPUTE, -18, "recomputation failed")     \
  X(IO, -19, "input/output")
/* clang-format on */

enum {
  NEAP_OK = 0,
  NEAP_NEED_RECOMPUTE = 1, /* not an error: the caller has to recompute and deliver */
#define NEAP_X(name, code, text) NEAP_ERR_##name = code,
  NEAP_ERRORS(NEAP_X)
#undef NEAP_X
};

NEAP_API const char *neap_last_error(void);     /* text of the last error of this thread */
NEAP_API const char *neap_error_name(int code); /* short name, "unknown error" for others */
NEAP_API int neap_version(void);                /* major * 10000 + minor * 100 + patch */
NEAP_API int neap_abi(void);
/* Of the text of this header that the library was built with (cksum); 0 where that is not known. */
NEAP_API double neap_header_sum(void);

/* ---- devices -------------------------------------------------------------------------------- */

/* Opens a device of a backend ("cpu", "null"). size_bytes: pretended size of null, 0 = unlimited,
 * ignored elsewhere. The same backend may be opened several times; each device counts for itself.
 * *device is an id that is never valid again after close. */
NEAP_API int neap_device_open(const char *backend, double size_bytes, int *device);
/* Fails with STATE while tensors on it are alive. */
NEAP_API int neap_device_close(int device);
NEAP_API const char *neap_device_name(int device); /* NULL when not open */
NEAP_API int neap_device_computes(int device);     /* 1; 0 for null; negative error */
/* Names the built-in backends: index 0.., NULL past the end. */
NEAP_API const char *neap_backend_name(int index);
/* Description of the matrix product in use, e.g. "oneDNN 2.6.3"; loads it. */
NEAP_API const char *neap_gemm_name(void);

NEAP_API int neap_threads_set(int n_threads); /* 1 <= n <= 1024 */
NEAP_API int neap_threads_get(void);
NEAP_API int neap_cores_physical(void);
NEAP_API double neap_now(void); /* monotonic seconds */

/* From now on the first SIGINT or SIGTERM is only remembered; the second ends the process at once
 * with 128 + its number. on = 0: as before. */
NEAP_API int neap_signal_watch(int on);
NEAP_API int neap_signal_pending(void); /* its number, 0: none */

/* Starts a program without a shell: words[0] is its path, NULL ends the words. It has this
 * process's environment, nothing on stdin, and its output in two files that are made anew. It is in
 * a process group of its own, and killed when this process ends. IO where it cannot run; nothing
 * runs then. */
NEAP_API int neap_process_start(const char *const *words, const char *out_path,
                                const char *err_path, double *pid);
/* Whether a program that was started has ended, without waiting. Once it has, *status is its exit
 * status, or minus the signal that ended it, and its number is of no use any more: STATE. */
NEAP_API int neap_process_status(double pid, int *has_ended, int *status);
NEAP_API int neap_process_signal(double pid, int signal_number); /* STATE where there is none */
NEAP_API void neap_sleep(double seconds);                        /* less when a signal comes */

/* What a line editor shows before the line, at most 63 bytes; copied. INVALID. */
NEAP_API int neap_prompt_set(const char *text);
NEAP_API char *neap_prompt(void *editor); /* the same text, in the form that libedit asks for it */

/* ---- memory: every byte is counted where it is allocated ----------------------------------------
 */

enum {
  NEAP_TAG_PARAMETERS,
  NEAP_TAG_BUFFERS,
  NEAP_TAG_GRADIENTS, /* of parameters only */
  NEAP_TAG_OPTIMIZER,
  NEAP_TAG_BATCH,
  NEAP_TAG_ACTIVATIONS, /* boundaries, residuals and their gradients */
  NEAP_TAG_RECOMPUTE,
  NEAP_TAG_SCRATCH, /* gone when the op returns */
  NEAP_TAG_WORKSPACE,
  NEAP_TAG_CHECK,
  NEAP_N_TAGS
};

/* Independent high-water marks of one device; each can be restarted alone. WORK counts only
 * activations + recompute + scratch + workspace, the others all tags. */
enum { NEAP_METER_RUN, NEAP_METER_STEP, NEAP_METER_ACTION, NEAP_METER_WORK, NEAP_N_METERS };

typedef struct neap_memory_stats {
  double live_bytes, reserved_bytes, cached_bytes; /* reserved = live + cached free blocks */
  double budget_bytes;                             /* negative: none */
  double size_bytes;                               /* of the device, negative: unknown */
  double n_allocations, n_device_allocations;      /* blocks handed out; calls into the backend */
  double n_tensors;
  double tag_live_bytes[10];
  double peak_bytes[4];         /* by meter */
  double tag_at_peak_bytes[10]; /* by tag at the moment of the STEP meter's peak */
} neap_memory_stats;

/* Live bytes: every storage rounded up to 64 bytes. */
NEAP_API int neap_memory_get(int device, neap_memory_stats *out);
NEAP_API int neap_memory_restart(int device, int meter); /* its peak becomes what is live now */
NEAP_API double neap_memory_peak(int device, int meter);
NEAP_API double neap_memory_live(int device);
/* Free bytes of the machine or card (cgroup limit included), or UNSUPPORTED. */
NEAP_API double neap_memory_available(int device);
/* Hard limit on live bytes of all tags, like a full device. Negative: none. NaN is an error. */
NEAP_API int neap_memory_budget(int device, double bytes);
NEAP_API int neap_memory_trim(int device); /* gives cached free memory back */
/* For tests: allocations on any device and of the library's own tables number n, n+1, … n+count-1
 * from now fail (count < 0: all from then on). n = 0 switches it off. */
NEAP_API int neap_memory_fail(double n, double count);
NEAP_API double
neap_memory_n_attempts(void); /* allocations attempted since the last neap_memory_fail */
/* Tag of the tensors that ops make from now on; returns the previous one, or an error. */
NEAP_API int neap_tag_select(int tag);
NEAP_API const char *neap_tag_name(int tag);

/* ---- tensors --------------------------------------------------------------------------------- */

enum { NEAP_F32, NEAP_BF16, NEAP_I32, NEAP_N_DTYPES };
enum { NEAP_MAX_DIMS = 6, NEAP_MAX_INPUTS = 6, NEAP_MAX_OUTPUTS = 4, NEAP_MAX_ATTRS = 8 };

/* A handle: slot + generation * 2^20, odd generation = alive. Passed as the double inside. Every
 * use checks it; a freed or foreign number is NEAP_ERR_STALE. */
typedef struct neap_tensor {
  double id;
} neap_tensor;

/* dims as doubles so that one place checks them: whole, 0 <= d <= 2^53, product without overflow.
 * Contents are undefined. tag: NEAP_TAG_*, or -1 for the selected one. */
NEAP_API double neap_tensor_new(int device, int dtype, int n_dims, const double *dims, int tag);
NEAP_API int neap_tensor_free(double id);  /* idempotent: 1 when it was freed already */
NEAP_API int neap_tensor_alive(double id); /* 1 or 0 */
/* Another handle of the same storage, without history: no gradient flows through it. */
NEAP_API double neap_tensor_detach(double id);
/* Raw views; the ops reshape and narrow are the differentiable ones. Row-major, contiguous. */
NEAP_API double neap_tensor_view(double id, int n_dims, const double *dims, double first_element);
NEAP_API int neap_tensor_device(double id);
NEAP_API int neap_tensor_dtype(double id);
NEAP_API int neap_tensor_n_dims(double id);
NEAP_API double neap_tensor_dim(double id, int dim); /* 0-based */
NEAP_API double neap_tensor_n_elements(double id);
NEAP_API double neap_tensor_bytes(double id);   /* counted bytes of its storage */
NEAP_API double neap_tensor_storage(double id); /* identity of its storage, for comparison */
NEAP_API double neap_tensor_version(double id); /* raised by each in-place write */
NEAP_API int neap_tensor_tag(double id);
NEAP_API int neap_tensor_retag(double id, int tag); /* its bytes count there from now on */
/* Host copies; bytes must be exactly n_elements * element size. On null a read gives zeros. */
NEAP_API int neap_tensor_write(double id, const void *from, size_t bytes);
NEAP_API int neap_tensor_read(double id, void *to, size_t bytes);
NEAP_API int neap_tensor_fill(double id, double value);
/* to += weight * (from - to), in place: f32, same shape and device, a finite weight. For running
 * means; no gradient flows. */
NEAP_API int neap_tensor_lerp(double to, double from, double weight);
/* element e of the tensor = f(seed, stream, e), by Philox: independent of threads and of order. */
NEAP_API int neap_tensor_fill_normal(double id, double mean, double std, double seed,
                                     double stream);
NEAP_API int neap_tensor_fill_uniform(double id, double lo, double hi, double seed, double stream);
NEAP_API int neap_tensor_copy(double to, double from); /* same shape and dtype, any two devices */
/* Exchanges the contents of two tensors of one shape, dtype and device without copying; both
 * without gradients. */
NEAP_API int neap_tensor_swap(double a, double b);
/* Where the program is ("stage 'block.3'"), for messages: names become numbers once, and a number
 * is selected; 0 is nowhere. Returns the previous one. */
NEAP_API int neap_place_find(const char *name);
NEAP_API int neap_place_select(int place);
NEAP_API int neap_tensor_hash(double n, const double *ids, char *hex33); /* XXH3-128 of contents */

/* Living tensors of a tag: fills the first capacity of ids, returns how many there are. */
NEAP_API int neap_tensor_list(int tag, int capacity, double *ids);

/* Scopes: tensors made since the matching begin are freed by end, except those in keep, which move
 * to the scope outside (or to nobody at depth 0). */
NEAP_API int neap_scope_begin(void);                                    /* the new depth */
NEAP_API int neap_scope_end(int depth, int n_keep, const double *keep); /* also ends deeper ones */
NEAP_API int neap_scope_depth(void);
NEAP_API int neap_scope_leave(double id);  /* the tensor belongs to no scope from now on */
NEAP_API int neap_tensor_scope(double id); /* depth of its scope, 0: nobody's */

/* ---- randomness: a pure function of a key and a position, there is no generator state
 * ------------ */

typedef struct neap_rng_state {
  double seed, step, item, n_items, stage, call;
} neap_rng_state;

/* item = index in the global batch of the first item of the tensors to come; n_items = items in
 * them (0: a tensor counts as one item); call counts the ops that draw, within (step, stage). */
NEAP_API int neap_rng_set(const neap_rng_state *state);
NEAP_API int neap_rng_get(neap_rng_state *state);
NEAP_API int neap_rng_stage(double stage); /* enters a stage: its call counter starts at 0 */
/* index -> a permutation of 0..n-1, keyed; O(1) memory. For shuffling by position. */
NEAP_API double neap_permute(double index, double n, double seed, double stream);
NEAP_API double neap_uniform(double index, double seed, double stream); /* in [0, 1) */

/* ---- ops ------------------------------------------------------------------------------------- */

/* X(ID, name, least inputs, most inputs, number of attributes, shape rule). (..) = any leading
 * dims. The shape rule (src/core/rule_*.c) checks shapes and says what is saved and how much
 * scratch is used. */
/* clang-format off */
#define NEAP_OPS(X)                                                                                       \
  X(RESHAPE, reshape, 1, 1, 8, reshape)       /* (any) -> attrs[1..attrs[0]]; shares storage */             \
  X(NARROW, narrow, 1, 1, 2, narrow)          /* rows first, n of dim 0; shares storage */                  \
  X(TRANSPOSE, transpose, 1, 1, 0, transpose) /* (..,M,N) -> (..,N,M), a copy */                            \
  X(ADD, add, 2, 2, 0, add)                   /* b's dims are a's or a's last ones */                       \
  X(MULTIPLY, multiply, 2, 2, 0, multiply)    /* likewise */                                                \
  X(SCALE, scale, 1, 1, 1, pointwise)         /* attr: factor */                                            \
  X(GELU, gelu, 1, 1, 0, activation)          /* tanh form */                                               \
  X(RELU, relu, 1, 1, 0, from_output)                                                                       \
  X(SILU, silu, 1, 1, 0, activation)                                                                        \
  X(LAYERNORM, layernorm, 3, 3, 1, layernorm) /* x (..,C), gain (C), bias (C); attr: eps */                 \
  X(RMSNORM, rmsnorm, 2, 2, 1, rmsnorm)       /* x (..,C), gain (C); attr: eps */                           \
  X(EMBEDDING, embedding, 2, 2, 0, embedding) /* i32 (..), weight (V,C) -> (..,C) */                        \
  X(DROPOUT, dropout, 1, 1, 1, dropout)       /* attr: p; the mask is drawn again in backward */            \
  X(LINEAR, linear, 2, 3, 0, linear)          /* x (..,K), w (N,K), bias (N) -> (..,N) */                   \
  X(MATMUL, matmul, 2, 2, 2, matmul)          /* (..,M,K) x (..,K,N), attrs: transpose a, b */              \
  X(ATTENTION, attention, 1, 1, 2, attention) /* qkv (B,T,3C) -> (B,T,C); attrs: heads, causal */           \
  X(CROSS_ENTROPY, cross_entropy, 2, 2, 0, cross_entropy) /* logits (..,V), i32 (..) -> mean, () */         \
  X(SUM, sum, 1, 1, 1, reduce)                /* attr: dim, -1 = all -> () */                               \
  X(MEAN, mean, 1, 1, 1, reduce)                                                                            \
  X(SUBTRACT, subtract, 2, 2, 0, subtract)    /* dims as of add */                                          \
  X(SIGMOID, sigmoid, 1, 1, 0, from_output)                                                                 \
  X(TANH, tanh, 1, 1, 0, from_output)                                                                       \
  X(SELECT, select, 1, 1, 2, select)          /* attrs: dim, index; a copy without that dim */              \
  X(LSTM_CELL, lstm_cell, 2, 2, 0, lstm_cell) /* gates (N,4H), c (N,H) -> h (N,H), c' (N,H) */              \
  X(GRU_CELL, gru_cell, 3, 3, 0, gru_cell)    /* x's and h's gates (N,3H), h (N,H) -> h' (N,H) */           \
  X(CONV2D, conv2d, 2, 3, 2, conv2d)          /* x (N,C,H,W), w (O,C,KH,KW), bias (O) -> (N,O,..) */        \
                                              /* attrs: stride, padding */                                  \
  X(BATCHNORM, batchnorm, 3, 3, 1, batchnorm) /* x (N,C,..), gain (C), bias (C); attr: eps */               \
                                              /* -> y, mean (C), variance (C) */                            \
  X(BATCHNORM_INFERENCE, batchnorm_inference, 5, 5, 1, batchnorm_inference) /* .. mean, variance */         \
  X(MAXPOOL2D, maxpool2d, 1, 1, 3, maxpool2d) /* (N,C,H,W); attrs: kernel, stride, padding */               \
  X(AVGPOOL2D, avgpool2d, 1, 1, 3, avgpool2d) /* likewise; zeros outside count */
/* clang-format on */

enum {
#define NEAP_X(id, name, least, most, n_attrs, rule) NEAP_OP_##id,
  NEAP_OPS(NEAP_X)
#undef NEAP_X
      NEAP_N_OPS,
  NEAP_OP_REGION = NEAP_N_OPS /* a checkpointed region on a tape */
};

NEAP_API int neap_op_find(const char *name); /* id, or NOT_FOUND */
NEAP_API const char *neap_op_name(int op);   /* NULL for an unknown id */
/* Registers a copy of a built-in op under an id and a name of its own. */
NEAP_API int neap_op_copy(int op, const char *name);
/* Registers an op whose forward and backward are Lua functions. */
NEAP_API int neap_op_lua(const char *name, int n_inputs, int n_outputs);

/* Runs an op: checks, allocates outputs, computes, and records it on the selected tape when an
 * input needs a gradient. Returns the handle of the first output; the others by neap_apply_output.
 */
NEAP_API double neap_apply1(int op, double a, double p0, double p1, double p2, double p3);
NEAP_API double neap_apply2(int op, double a, double b, double p0, double p1, double p2, double p3);
NEAP_API double neap_apply3(int op, double a, double b, double c, double p0, double p1, double p2,
                            double p3);
NEAP_API double neap_apply(int op, int n_inputs, const double *inputs, int n_attrs,
                           const double *attrs);
NEAP_API double neap_apply_output(int k); /* k-th output of the last apply, k >= 1 */

typedef struct neap_counters {
  double n_forwards, n_backwards; /* ops */
  double forward_flops, backward_flops;
  double forward_bytes, backward_bytes; /* of tensors read and written, each once an op */
} neap_counters;
NEAP_API int neap_counters_get(neap_counters *out); /* since the library was loaded */
/* The same of one op. What a recomputation leaves out is not counted. */
NEAP_API int neap_counters_of(int op, neap_counters *out);

/* ---- autograd: the tape ------------------------------------------------------------------------
 */

/* A tape holds what backward needs: saved tensors with their version, and nothing else. */
NEAP_API int neap_tape_new(void);      /* id >= 1, or an error; tapes are pooled */
NEAP_API int neap_tape_free(int tape); /* drops what it holds; idempotent */
/* Ops record on this tape from now on (0: on none). Returns the previous one. */
NEAP_API int neap_tape_select(int tape);
NEAP_API int neap_tape_selected(void);
/* Whether the running stage or region runs for the first time (0) or as a recomputation (1). */
NEAP_API int neap_recomputing_set(int recomputing); /* returns the previous value */
NEAP_API int neap_recomputing(void);
/* Makes the tensor a start of the tape: returns a new handle on the same storage, whose gradient is
 * collected when grad != 0. Inputs are numbered 0.. in order of the calls. */
NEAP_API double neap_tape_input(int tape, double id, int grad);
/* Marks the tensor as the tape's next output (numbered 0..); it may be a tensor without history. */
NEAP_API int neap_tape_output(int tape, double id);
/* Gives the gradient of output k and takes the handle (it is stale afterwards, also for an output
 * that needs none). Shape and dtype must be the output's. */
NEAP_API int neap_tape_seed(int tape, int output, double grad);
/* Walks the tape backwards. 0: done. n > 0: node n - 1 belongs to a Lua op: serve it with the calls
 * below, then call again. On OUT OF MEMORY the node it stopped at is untouched: call again to
 * retry. */
NEAP_API int neap_tape_backward(int tape);
/* The gradient of input k: a handle that is the caller's; 0 when nothing flowed there. A gradient
 * never shares storage with another. */
NEAP_API double neap_tape_input_grad(int tape, int input);
NEAP_API int neap_tape_n_nodes(int tape);
NEAP_API int neap_tape_n_inputs(int tape);
NEAP_API int neap_tape_n_outputs(int tape);
NEAP_API int neap_tape_node_op(int tape, int node);
NEAP_API double
neap_tape_saved_bytes(int tape); /* of distinct storages, parameters and inputs too */
/* 1 when the tape holds the storage of this tensor. */
NEAP_API int neap_tape_saves(int tape, double id);
/* Distinct saved storages, as identities of neap_tensor_storage with their bytes and tag. */
NEAP_API int neap_tape_saved(int tape, int capacity, double *storages, double *bytes, int *tags);
/* Lua ops. record: after a Lua forward made its outputs; saved tensors are kept by the tape. */
NEAP_API int neap_tape_record_lua(int tape, int op, int n_inputs, const double *inputs,
                                  int n_outputs, const double *outputs, int n_saved,
                                  const double *saved);
NEAP_API int neap_tape_node_n_saved(int tape, int node);
NEAP_API int neap_tape_node_n_saved(int tape, int node);
NEAP_API double neap_tape_node_saved(int tape, int node, int k);     /* new handle */
NEAP_API double neap_tape_node_grad(int tape, int node, int output); /* new handle, 0: none */
NEAP_API int neap_tape_node_wants(int tape, int node,
                                  int input); /* 1 when its gradient is needed */
NEAP_API int neap_tape_node_give(int tape, int node, int input, double grad); /* takes the handle */
NEAP_API int neap_tape_node_done(int tape, int node); /* its gradients are all given */
/* Takes the gradient that has reached an input so far: a handle, 0 when there is none or it is a
 * leaf's. input_start gives one to an input of another tape, which adds to it (takes the handle);
 * so sums of gradients are made in the same order wherever an op ran. */
NEAP_API double neap_tape_node_take(int tape, int node, int input);
NEAP_API int neap_tape_input_start(int tape, int input, double grad);
/* MODIFIED when the storage of input k was written in place since it came in; id: a tensor of it.
 */
NEAP_API int neap_tape_input_intact(int tape, int input, double id);

/* What a tape holds, value by value in the order of its nodes. */
enum { NEAP_SAVED_INPUT, NEAP_SAVED_OUTPUT, NEAP_SAVED_EXTRA };
typedef struct neap_saved {
  double storage, bytes; /* 0: nothing is saved there */
  double dims[6];
  int32_t op, node, role, number, n_dims, dtype, tag; /* number: of the input or output, from 0 */
} neap_saved;
NEAP_API int neap_tape_n_values(int tape);
NEAP_API int neap_tape_value(int tape, int value, neap_saved *out);

/* Traces remember which ops a first forward ran without holding what they made. A recomputation
 * that follows one is checked against it and computes only what backward needs ("early stop"):
 * ops after the last save get a shape and no memory. */
enum { NEAP_CHECK_NONE, NEAP_CHECK_SHAPE, NEAP_CHECK_VALUE };
/* VALUE keeps a copy of each tensor that would be saved (tag check) and compares the recomputation
 * with it by bits. snapshots_buffers: what buffers (tag buffers) held before they were written is
 * kept, and given back to them while the trace is followed. Pooled; id or an error. */
NEAP_API int neap_trace_new(int check, int snapshots_buffers);
NEAP_API int neap_trace_free(int trace);  /* idempotent; closes it where it is open or followed */
NEAP_API int neap_trace_clear(int trace); /* closes it and gives back all that it holds */
NEAP_API int neap_trace_alive(int trace);
/* Outputs of this kind of op are held, and taken over by the recomputation: selective
 * recomputation. keep_at: of the op with this number alone. */
NEAP_API int neap_trace_keep(int trace, int op);
NEAP_API int neap_trace_keep_at(int trace, int number);
/* A tensor with history outside that the region may use; MODIFIED at the end if it was written. */
NEAP_API int neap_trace_argument(int trace, double id);
/* Opens it: returns its tape, to be selected while the forward runs. That tape knows histories and
 * saves nothing; it is freed by the end. Traces nest. */
NEAP_API int neap_trace_begin(int trace);
NEAP_API int neap_trace_end(int trace);
/* A recomputation on this tape begins. early: what backward does not need is left out. Afterwards,
 * in any case, unfollow; complete: whether it ran to its end, then RECOMPUTE tells an op that is
 * missing. */
NEAP_API int neap_trace_follow(int trace, int tape, int early);
NEAP_API int neap_trace_unfollow(int trace, int complete);

typedef struct neap_trace_op {
  double bytes, dims[6]; /* of its first output */
  int32_t op, n_dims, dtype, recorded, draws, is_view;
  int32_t computes, keeps; /* in a recomputation that stops early */
} neap_trace_op;
NEAP_API int neap_trace_n_ops(int trace);
NEAP_API int neap_trace_get_op(int trace, int i, neap_trace_op *out);
NEAP_API int neap_trace_draws(int trace);         /* ops that drew random numbers */
NEAP_API double neap_trace_held_bytes(int trace); /* kept for selective recomputation */
NEAP_API double neap_trace_check_bytes(int trace);
NEAP_API int neap_trace_holds(int trace, double id); /* 1 when the tensor's storage is held */

/* A region as one node: keeps its inputs, and frees the trace with the node. Outputs must be new
 * tensors without history. On a weak tape (of a trace) nothing is kept, and the trace is not taken.
 * The walk hands the node over like one of a Lua op: op NEAP_OP_REGION. */
NEAP_API int neap_tape_record_region(int tape, int n_inputs, const double *inputs, int n_outputs,
                                     const double *outputs, int trace);
NEAP_API int neap_tape_region_trace(int tape, int node);
NEAP_API double neap_tape_region_input(int tape, int node, int input); /* new handle */
NEAP_API int neap_tape_is_weak(int tape);
NEAP_API int neap_tensor_tape(double id); /* the tape that holds its history, 0: none */

/* Walks from a scalar of the selected tape back to its start, seeding with 1, then empties the
 * tape. The same protocol as neap_tape_backward; after an error other than OUT OF MEMORY the tape
 * is empty. */
NEAP_API int neap_backward(double loss);
/* Gives up a walk of the selected tape that will not be called again: empties the tape. Nothing
 * when it is not being walked. */
NEAP_API int neap_backward_abandon(void);

/* Leaves. requires_grad 1 makes the tensor a leaf whose gradient accumulates in neap_tensor_grad.
 */
NEAP_API int neap_tensor_requires_grad(double id, int on);
NEAP_API int
neap_tensor_needs_grad(double id); /* leaf that requires one, or history on a live tape */
/* The leaf's gradient: allocated and zeroed at the first call or backward; a handle owned by the
 * leaf, stale when the leaf is freed. */
NEAP_API double neap_tensor_grad(double id);

/* ---- optimizers (in place; raise versions)
 * -------------------------------------------------------- */

/* AdamW (Loshchilov & Hutter 2019). step counts from 1. Decoupled decay: p -= lr * decay * p.
 * grad_scale multiplies the gradient first (clipping). */
NEAP_API int neap_adamw(double param, double grad, double m, double v, double lr, double beta1,
                        double beta2, double eps, double decay, double step, double grad_scale);
/* v = momentum * v + g + decay * p; p -= lr * v. velocity 0: no momentum. */
NEAP_API int neap_sgd(double param, double grad, double velocity, double lr, double momentum,
                      double decay, double grad_scale);
/* sqrt of the sum of squares over all tensors, in double, in a fixed order. Scratch: one double per
 * 4,096 elements of the largest tensor. */
NEAP_API int neap_global_norm(int n, const double *ids, double *norm);

/* ---- policies and the manager (src/checkpoint): see the comments in policy.c and manager.c
 * ---------- */

/* Words of the source systems: an activation is CHECKPOINTED when its data was dropped and will be
 * recomputed; it is STORED when its data is held. So every_n:3 DROPS each third one. */
enum {
  NEAP_POLICY_NONE,    /* store all */
  NEAP_POLICY_ALL,     /* drop all */
  NEAP_POLICY_EVERY_N, /* drop where index % n == 0; n = 0 drops none */
  NEAP_POLICY_BY_NAME, /* drop where a prefix matches (bytes, case-sensitive) */
  NEAP_POLICY_GREEDY /* first fit: store while stored + bytes <= budget; zero bytes always stored */
};

typedef struct neap_policy {
  int32_t kind;
  int32_t n_prefixes;
  uint64_t n;                  /* EVERY_N */
  uint64_t budget_bytes;       /* GREEDY */
  const char *const *prefixes; /* BY_NAME; copied by the manager */
} neap_policy;

/* 1: drop, 0: store, or an error. stored_bytes: what is stored so far (only GREEDY looks at it). */
NEAP_API int neap_policy_drops(const neap_policy *policy, const char *name, uint64_t index,
                               uint64_t bytes, uint64_t stored_bytes);

typedef struct neap_manager neap_manager;

typedef struct neap_manager_stats {
  uint64_t stored_bytes, checkpointed_bytes, recomputed_bytes, current_bytes;
  uint64_t n_stored, n_checkpointed, n_snapshots, n_log;
  float savings_ratio; /* f32(checkpointed) / f32(stored + checkpointed), 0 when both are 0 */
} neap_manager_stats;

typedef struct neap_snapshot {
  const char *name;                            /* valid until the manager changes */
  uint64_t index, logical_bytes, stored_bytes; /* stored: 0 when checkpointed */
  uint64_t n_elements;                         /* UINT64_MAX: recorded by its bytes */
  double cost;
  int32_t is_checkpointed, n_dims;
  const uint64_t *dims;
  const float *data; /* host data, NULL when none is held */
  uint64_t n_data;
  double payload; /* what record_payload gave; 0 when none */
} neap_snapshot;

NEAP_API int neap_manager_new(const neap_policy *policy, neap_manager **out);
NEAP_API void neap_manager_free(neap_manager *manager);
NEAP_API int
neap_manager_clear(neap_manager *manager); /* snapshots, log, stats; keeps the policy */
/* Another policy for later records; a copy is taken. */
NEAP_API int neap_manager_set_policy(neap_manager *manager, const neap_policy *policy);
/* Records an activation of f32 elements; the policy decides. Checks, in this order: overflow of
 * 4 * product(dims), duplicate name, data length; when one fails nothing has changed. data NULL
 * with n_data = UINT64_MAX records the size alone. Data of a stored one is copied. */
NEAP_API int neap_manager_record(neap_manager *manager, const char *name, uint64_t index,
                                 int n_dims, const uint64_t *dims, const float *data,
                                 uint64_t n_data, double cost);
/* Records bytes held elsewhere: payload (a tensor or tape id, not 0) is kept and given back by get.
 * drop: 1, 0, or -1 to ask the policy. Returns 1 when it was dropped (the payload is not kept), 0
 * when stored. The manager never frees payloads: release and clear are told to the caller by its
 * own list. */
NEAP_API int neap_manager_record_payload(neap_manager *manager, const char *name, uint64_t index,
                                         uint64_t bytes, double payload, double cost, int drop);
/* 0: *out is filled. NEAP_NEED_RECOMPUTE: dropped; recompute and call deliver. NOT_FOUND otherwise.
 */
NEAP_API int neap_manager_get(neap_manager *manager, const char *name, neap_snapshot *out);
/* Tells that a dropped activation was recomputed: n_elements is compared with its shape (SHAPE on a
 * difference, nothing counted), bytes and name go into stats and log. UINT64_MAX skips the
 * comparison. */
NEAP_API int neap_manager_deliver(neap_manager *manager, const char *name, uint64_t n_elements);
/* Forgets one activation: the snapshot goes, and with it its bytes and its count (stored and
 * current when it was stored, checkpointed otherwise). Recomputed bytes and the log stay. */
NEAP_API int neap_manager_release(neap_manager *manager, const char *name);
NEAP_API int neap_manager_get_stats(const neap_manager *manager, neap_manager_stats *out);
NEAP_API int neap_manager_snapshot(neap_manager *manager, uint64_t i, neap_snapshot *out);
NEAP_API const char *neap_manager_log(const neap_manager *manager,
                                      uint64_t i); /* NULL past the end */

/* ---- segments
 * -------------------------------------------------------------------------------------- */

/* n_segments balanced segments of n_stages stages: segment k starts at floor(k * L / S). 1 <= S <=
 * L, else SEGMENT_COUNT. A BOUNDARY is what is kept: the first stage of a segment and the last of
 * the chain. */
typedef struct neap_segments neap_segments;
NEAP_API int neap_segments_new(uint64_t n_segments, uint64_t n_stages, neap_segments **out);
NEAP_API void neap_segments_free(neap_segments *segments);
NEAP_API uint64_t neap_segments_start(const neap_segments *segments,
                                      uint64_t k); /* k = S gives L */
NEAP_API int neap_segments_is_boundary(const neap_segments *segments, uint64_t stage);
NEAP_API float neap_segments_kept_fraction(const neap_segments *segments); /* S / L */
/* Slot k holds the output of segment k (its last stage): floats are copied; SEGMENT when k >= S. */
NEAP_API int neap_segments_record(neap_segments *segments, uint64_t k, const float *data,
                                  uint64_t n);
/* *data = NULL when nothing was recorded, or there is no such segment. */
NEAP_API int neap_segments_get(const neap_segments *segments, uint64_t k, const float **data,
                               uint64_t *n);
NEAP_API uint64_t neap_segments_bytes(const neap_segments *segments); /* of the outputs held */
NEAP_API int neap_segments_clear(neap_segments *segments);            /* gives all outputs up */

/* ---- layers: policies that look at all layers of a model at once ------------------------------
 */

enum {
  NEAP_LAYER_OTHER,
  NEAP_LAYER_ATTENTION,
  NEAP_LAYER_FFN,
  NEAP_LAYER_EMBEDDING,
  NEAP_LAYER_NORM,
  NEAP_N_LAYER_KINDS
};

typedef struct neap_layer {
  uint64_t index; /* its number in the model; the list may hold any, each once */
  uint64_t bytes; /* of its activation */
  uint64_t flops; /* of recomputing it */
  int32_t kind;   /* NEAP_LAYER_* */
} neap_layer;

/* "Position" is the place in the list, from 0; ties go to the smaller position. */
enum {
  NEAP_LAYERS_NONE,             /* drop none */
  NEAP_LAYERS_ALL,              /* drop all */
  NEAP_LAYERS_EVERY_N,          /* drop positions 0, n, 2n, ... */
  NEAP_LAYERS_SPECIFIC,         /* drop those whose index is listed; others listed are harmless */
  NEAP_LAYERS_MEMORY_THRESHOLD, /* drop where bytes >= threshold; 0 drops all */
  /* Drop the fewest such that the others' bytes are at most the budget; of those the fewest bytes,
   * then the smallest positions. Dropping all meets any budget. (The source system's "optimal" was
   * one pass that bounded the bytes between two drops, not their sum.) */
  NEAP_LAYERS_FEWEST,
  NEAP_LAYERS_BY_KIND, /* drop those of one kind */
  /* Drop m = floor(ratio * n + 1/2) of them at positions floor(i * n / m): evenly spaced and always
   * m. (The source system took the first ones, or fewer.) */
  NEAP_LAYERS_RATIO,
  NEAP_LAYERS_LARGEST, /* drop the n with most bytes */
  /* Drop the least FLOPs such that stored bytes + the largest dropped activation (there again while
   * it is recomputed, which the source system forgot) are at most the budget; of those the fewest
   * layers, then the smallest positions. INFEASIBLE when dropping all does not do. */
  NEAP_LAYERS_BUDGET
};

typedef struct neap_layer_policy {
  int32_t kind;            /* NEAP_LAYERS_* */
  int32_t layer_kind;      /* BY_KIND */
  uint64_t n;              /* EVERY_N; LARGEST: how many, more than there are takes all */
  uint64_t bytes;          /* MEMORY_THRESHOLD: the threshold; FEWEST: the budget */
  double ratio;            /* RATIO: 0 to 1 */
  double budget_mib;       /* BUDGET, in MiB, rounded down to bytes: 0 or more, may be infinite */
  uint64_t n_indices;      /* SPECIFIC */
  const uint64_t *indices; /* any order, duplicates are harmless */
} neap_layer_policy;

/* Writes drops[i] = 1 for each layer to drop. INVALID for a policy or a kind without meaning
 * (EVERY_N of 0, a ratio outside 0..1, NaN), DUPLICATE for an index twice, OVERFLOW when the bytes
 * sum to more than 64 bits hold. An empty list is no error. FEWEST and BUDGET search exactly, as
 * long as that takes about a million steps; 1 instead of 0 says that they were cut short (then the
 * number of layers of FEWEST and the budget still hold, and what comes second may be more than the
 * least). */
NEAP_API int neap_layers_drops(const neap_layer_policy *policy, uint64_t n,
                               const neap_layer *layers, uint8_t *drops);
/* The same where only sizes are known: n layers with indices 0..n-1, of sizes[i] bytes; missing
 * sizes are 0, superfluous ones are ignored. NONE to FEWEST and LARGEST; here EVERY_N of 0 drops
 * none. */
NEAP_API int neap_layers_drops_by_size(const neap_layer_policy *policy, uint64_t n,
                                       uint64_t n_sizes, const uint64_t *sizes, uint8_t *drops);

typedef struct neap_layers_estimate {
  uint64_t n_layers, n_dropped;
  uint64_t stored_bytes, dropped_bytes;
  uint64_t recompute_peak_bytes; /* the largest dropped activation */
  uint64_t estimate_bytes;       /* stored_bytes + recompute_peak_bytes */
  uint64_t recompute_flops;      /* of all dropped ones */
  float dropped_fraction;        /* of layers, as f32(dropped) / f32(layers); 0 of none */
  double freed_fraction;         /* of bytes; 0 of none */
} neap_layers_estimate;

/* What dropping these does; OVERFLOW when a sum does not fit in 64 bits. */
NEAP_API int neap_layers_estimate_drops(uint64_t n, const neap_layer *layers, const uint8_t *drops,
                                        neap_layers_estimate *out);
NEAP_API double neap_layer_cost_ratio(const neap_layer *layer); /* FLOPs a byte; 0 for 0 bytes */
NEAP_API const char *neap_layer_kind_name(int kind);            /* "attention"; NULL for others */

/* Activations held now, by layer index, against a capacity that is told, not enforced. */
typedef struct neap_buffer neap_buffer;
NEAP_API int neap_buffer_new(uint64_t capacity_bytes, neap_buffer **out);
NEAP_API void neap_buffer_free(neap_buffer *buffer);
/* DUPLICATE when the layer is held already, OVERFLOW when the sum does not fit in 64 bits; a push
 * beyond the capacity is not refused. */
NEAP_API int neap_buffer_push(neap_buffer *buffer, uint64_t index, uint64_t bytes);
/* Gives its bytes (bytes may be NULL); NOT_FOUND. */
NEAP_API int neap_buffer_evict(neap_buffer *buffer, uint64_t index, uint64_t *bytes);
NEAP_API uint64_t neap_buffer_bytes(const neap_buffer *buffer);
NEAP_API uint64_t neap_buffer_count(const neap_buffer *buffer);
NEAP_API int neap_buffer_holds(const neap_buffer *buffer, uint64_t index); /* 1 or 0 */
/* Bytes / capacity: above 1 when over-full. Of no capacity: 1 with nothing in it, else infinite. */
NEAP_API double neap_buffer_pressure(const neap_buffer *buffer);

/* ---- plans: actions as data, validated and simulated
 * ------------------------------------------------- */

enum { NEAP_ACTION_FORWARD, NEAP_ACTION_BACKWARD, NEAP_ACTION_FREE_X, NEAP_ACTION_FREE_R };
enum { NEAP_KEEP_NOTHING, NEAP_KEEP_INPUT, NEAP_KEEP_EVERYTHING };

typedef struct neap_action {
  int32_t op, stage, keep, mode; /* keep: FORWARD only; mode: EVERYTHING only, 0 = store all */
} neap_action;

enum { NEAP_MAX_BOUNDARY = 8 /* most tensors in one x_i */, NEAP_MAX_MODES = 64 };

/* One more way for a stage to keep its residuals: a forward keeping everything in mode m >= 1 saves
 * what modes[m - 1] says, and the backward that follows makes the rest again inside itself. Such a
 * forward always makes x_{i+1}; the gradient that backward leaves is the stage's. Selective
 * recomputation: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
 * 2022. */
typedef struct neap_mode {
  int64_t saved_bytes; /* r[i] in this mode */
  int64_t forward_extra_bytes, backward_extra_bytes;
  int64_t forward_cost, backward_cost;             /* backward: with what it makes again */
  int64_t forward_peak_bytes, backward_peak_bytes; /* of a measured stage, like its own */
  uint32_t saves_in, saves_out;                    /* likewise */
} neap_mode;

/* One stage i of a chain: it reads x_i and writes x_{i+1}. Bytes are exact and never negative. */
typedef struct neap_stage {
  int64_t out_bytes;            /* a[i+1]: distinct storages of x_{i+1}; also of its gradient */
  int64_t saved_bytes;          /* r[i]: kept for backward beyond x_i and x_{i+1} */
  int64_t forward_extra_bytes;  /* ef[i] */
  int64_t backward_extra_bytes; /* eb[i] */
  int64_t forward_cost, backward_cost; /* nanoseconds or FLOPs */
  int64_t recompute_cost;              /* stops_early only */
  int64_t recompute_extra_bytes;
  int32_t stops_early; /* a recomputation right before the stage's backward makes no x_{i+1} */
  int32_t measured;    /* 1: the fields below are right and are used instead of the table above */
  /* peak of the action over live bytes at its entry, by neap_keep; [3]: early-stopped recomputation
   */
  int64_t forward_peak_bytes[4];
  int64_t backward_peak_bytes;
  int64_t grad_bytes; /* gradient of x_i that backward leaves */
  /* storage identities: x_{i+1} has n_out tensors; out_source[k] = -1 for a new storage of
   * out_storage_bytes[k], j >= 0 for the storage of x_i's tensor j, -2 - j for the one of output j
   * < k. */
  int32_t n_out;
  int32_t out_source[8];
  int64_t out_storage_bytes[8];
  uint32_t saves_in, saves_out; /* bit j: the record holds x_i's / x_{i+1}'s tensor j */
  int32_t n_modes;              /* beside store all (mode 0) and recompute */
  const neap_mode *modes;       /* the caller's, as long as the stages; NULL when n_modes = 0 */
} neap_stage;

typedef struct neap_simulation {
  int64_t peak_bytes, cost, end_bytes;
  int32_t peak_action, n_forwards; /* peak_action: from 0, the first with that peak */
} neap_simulation;

/* Plans of the policies. drops: n_stages bytes, 1 = the stage's residuals are recomputed before its
 * backward; boundaries stay. actions: at least neap_plan_capacity(n) of them. Returns their number.
 */
NEAP_API int neap_plan_capacity(int n_stages);
NEAP_API int neap_plan_from_drops(int n_stages, const neap_stage *stages, const uint8_t *drops,
                                  neap_action *actions);
/* starts: the first stage of each segment, starts[0] = 0, rising. Each segment but the last is
 * recomputed once; stops_early of a stage is used where a recomputation meets its backward. */
NEAP_API int neap_plan_from_segments(int n_stages, const neap_stage *stages, int n_segments,
                                     const int32_t *starts, neap_action *actions);
/* PLAN with the action's number (from 1) and the reason: reads what is not there, frees twice,
 * misses a backward, leaves something alive. */
NEAP_API int neap_plan_validate(int n_stages, const neap_stage *stages, int n_actions,
                                const neap_action *actions);
/* Validates, then executes on counters. timeline (or NULL): two numbers an action, the live bytes
 * after it and the peak inside it. */
NEAP_API int neap_plan_simulate(int n_stages, const neap_stage *stages, int n_actions,
                                const neap_action *actions, neap_simulation *out,
                                int64_t *timeline);

/* The split into segments with the least simulated peak when each but the last is recomputed once;
 * on a tie the one that recomputes fewer stages. starts: room for n_stages. Returns their number.
 * O(n^2) time, O(n) memory. */
NEAP_API int neap_plan_segments_auto(int n_stages, const neap_stage *stages, int32_t *starts,
                                     int64_t *peak_bytes);
/* The binomial schedule with the fewest forwards for n_slots kept boundaries, that of x_0 among
 * them, when all stages cost the same: Griewank & Walther, Algorithm 799: Revolve, 2000. Writes as
 * many actions as there is room for; returns how many there are. */
NEAP_API int neap_plan_revolve(int n_stages, const neap_stage *stages, int n_slots, int capacity,
                               neap_action *actions);

/* The memory-cost curve of a chain in one solve. Each point is a plan: peaks rise, costs fall. The
 * schedules are the persistent ones (a kept boundary stays until the backward that needs it), as in
 * Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for heterogeneous chains,
 * 2019, on exact bytes; on short chains boundaries may also be dropped and made again. A point's
 * peak is what neap_plan_simulate finds for its actions. */
typedef struct neap_frontier neap_frontier;

typedef struct neap_frontier_options {
  int64_t max_points; /* of the list of one interval, at least 2; 0: by the size of the chain */
  int32_t exact;      /* 1: no cap, however long it takes */
  int32_t with_modes; /* 1: the stages' named modes are used too */
  int32_t n_threads;  /* 0: as set by neap_threads_set */
} neap_frontier_options;

/* options NULL: {with_modes = 1}. At most 4,096 stages; OVERFLOW where sums of bytes or costs might
 * not fit in 62 bits. The frontier copies what it needs of the stages. */
NEAP_API int neap_frontier_new(int n_stages, const neap_stage *stages,
                               const neap_frontier_options *options, neap_frontier **out);
NEAP_API void neap_frontier_free(neap_frontier *frontier); /* NULL: nothing */
NEAP_API int neap_frontier_n_points(const neap_frontier *frontier);
NEAP_API int neap_frontier_point(const neap_frontier *frontier, int k, int64_t *peak_bytes,
                                 int64_t *cost); /* k from 0 */
/* Writes as many actions of point k as there is room for; returns how many there are. */
NEAP_API int neap_frontier_actions(neap_frontier *frontier, int k, int capacity,
                                   neap_action *actions);
NEAP_API int neap_frontier_is_exact(const neap_frontier *frontier); /* 0: some list was cut */
/* An estimate of how much more a point costs than the exact one at its peak, as a fraction: twice
 * the largest excess of a solve that looks at half as much. 0: exact. */
NEAP_API double neap_frontier_gap(const neap_frontier *frontier);

/* ---- the auto-chunk prober: how many items one forward may take (src/chunk) --------------------
 */

/* A chunk is searched on the ladder floor', 2 floor', 4 floor', .., cap' with cap' = max(cap, 1)
 * and floor' = floor within 1..cap' (a floor above the cap becomes the cap). The last step may be
 * short, so the answer is floor' * 2^k or the cap; between two rungs nothing is looked for, and a
 * larger cap may give a smaller answer (307 fits where 308 does not and 256 is the rung before).
 * target: share of the free memory that forward and backward may take, within 0.05..0.95 (f32; NaN
 * is INVALID). Budget of a forward = free * target * 0.5, rounded down: backward has the other
 * half. Sums and products saturate; what does not fit in 64 bits does not fit the budget. */

/* The share as it counts, within 0.05..0.95. */
NEAP_API int neap_chunk_target(double target, float *effective);
NEAP_API int neap_chunk_budget(uint64_t free_bytes, double target, uint64_t *bytes);
/* The largest rung whose n * item_bytes is within the budget, exactly equal included; the floor
 * when none is (the floor is a promise). 0 item bytes count as 1: not measured. Returns 1 when the
 * answer fits, 0 when the floor does not. */
NEAP_API int neap_chunk_from_measurements(uint64_t free_bytes, uint64_t item_bytes, uint64_t cap,
                                          uint64_t floor, double target, uint64_t *n);

enum { NEAP_CHUNK_UNSUPPORTED, NEAP_CHUNK_NOTHING_FITS, NEAP_CHUNK_CHOSEN };

typedef struct neap_chunk_outcome {
  int32_t kind; /* UNSUPPORTED: memory is not told, keep the default. NOTHING_FITS: the floor failed
                   for want of memory; no default will do. CHOSEN: n */
  int32_t within_budget; /* 1, 0; -1: unmeasured, the free memory did not fall or was not told */
  uint64_t n;            /* 0 when none was chosen */
  uint64_t used_bytes;   /* by a forward of n items */
  uint64_t item_bytes;   /* used_bytes / n, rounded down */
  uint64_t free_bytes, total_bytes, budget_bytes; /* before the first forward */
  uint64_t cap, floor;                            /* as they counted */
  float target;                                   /* as it counted */
  char stop[160];                                 /* why the ladder ended */
} neap_chunk_outcome;

/* The ladder, one step at a time; it runs nothing. new; start with what is free; then while next
 * says 1: run a forward of n items from the same state and report it by ran, ran_unseen or failed.
 */
typedef struct neap_prober neap_prober;
NEAP_API int neap_prober_new(uint64_t cap, uint64_t floor, double target, neap_prober **out);
NEAP_API void neap_prober_free(neap_prober *prober);
/* free_bytes before anything ran: the one baseline. A pool's unused reserve counts as free. */
NEAP_API int neap_prober_start(neap_prober *prober, uint64_t free_bytes, uint64_t total_bytes);
NEAP_API int neap_prober_start_unseen(neap_prober *prober); /* memory is not told: nothing to run */
/* 1: run *n items and report; 0: done. STATE before start. */
NEAP_API int neap_prober_next(const neap_prober *prober, uint64_t *n);
/* It ran; free_bytes while its result was alive. STATE when nothing was to be run. The floor over
 * budget ends the ladder and is chosen, not within budget. A higher rung over budget ends it, the
 * one before stands. The rung after the floor is tried without a forecast (the first touch costs
 * extra), later ones only when they fit at this rung's bytes an item, rounded down. */
NEAP_API int neap_prober_ran(neap_prober *prober, uint64_t free_bytes);
/* It ran, but then memory was not told: a higher rung does not count, the floor is chosen
 * unmeasured. */
NEAP_API int neap_prober_ran_unseen(neap_prober *prober);
/* It ran out of memory. Any other error is the caller's: free the prober and raise it. */
NEAP_API int neap_prober_failed(neap_prober *prober);
NEAP_API int neap_prober_outcome(const neap_prober *prober,
                                 neap_chunk_outcome *out); /* once done */

/* ---- files ---------------------------------------------------------------------------------- */

/* Makes the file hold exactly these bytes, whole or not at all: temp file beside it, fsync, rename,
 * fsync of the directory. A link is replaced, not followed. On IO before the rename the old file is
 * unaltered and no temp file stays. */
NEAP_API int neap_file_write(const char *path, const void *data, size_t bytes);
/* Appends whole lines (data ends in '\n') by one write; makes the file where there is none. Not
 * synced. IO after a short write: the file ends in a torn line, which readers cut. */
NEAP_API int neap_file_append(const char *path, const void *data, size_t bytes);
/* Takes the file (made where there is none) for this process alone, until it ends. STATE when
 * another process has it. */
NEAP_API int neap_file_lock(const char *path);
/* XXH3-128 as 32 hexadecimal digits and a zero. */
NEAP_API int neap_hash_bytes(const void *data, size_t bytes, char *hex33);

/* ---- safetensors: state files
 * ------------------------------------------------------------------------ */

/* Format: https://github.com/huggingface/safetensors. F32, BF16 and I32 are our three dtypes; other
 * dtypes of the format are listed, not read. */

/* Writes the tensors in this order and n_metadata pairs of strings, whole or not at all like
 * neap_file_write, through 1 MiB of host memory. Names are unique, valid UTF-8 and not
 * "__metadata__"; at most 1,000,000 tensors and 10,000 pairs. */
NEAP_API int neap_safetensors_save(const char *path, int n, const char *const *names,
                                   const double *tensors, int n_metadata, const char *const *keys,
                                   const char *const *values);

typedef struct neap_safetensors neap_safetensors;

/* Opens a file and checks all of its header: sizes, JSON without a key twice, the three keys of
 * every entry, data that covers the rest of the file without hole or overlap. IO when something is
 * wrong. Beyond the format: at most 64 dimensions, 1,000,000 tensors, 10,000 metadata keys, no
 * character 0 in a string. Takes less than twice the header's memory + 256 KiB. The file stays open
 * until close; texts are valid until then. */
NEAP_API int neap_safetensors_open(const char *path, neap_safetensors **out);
NEAP_API void neap_safetensors_close(neap_safetensors *file);
/* Tensors are numbered 0.. in the header's order. A number that is not there is INVALID. */
NEAP_API int neap_safetensors_count(const neap_safetensors *file);
NEAP_API const char *neap_safetensors_name(const neap_safetensors *file, int i); /* or NULL */
NEAP_API int neap_safetensors_dtype(const neap_safetensors *file, int i); /* or UNSUPPORTED */
NEAP_API const char *neap_safetensors_dtype_name(const neap_safetensors *file,
                                                 int i); /* the format's word: "F64" */
NEAP_API int neap_safetensors_n_dims(const neap_safetensors *file, int i);
NEAP_API double neap_safetensors_dim(const neap_safetensors *file, int i, int d);
NEAP_API double neap_safetensors_bytes(const neap_safetensors *file, int i);
NEAP_API int neap_safetensors_find(const neap_safetensors *file, const char *name); /* NOT_FOUND */
NEAP_API const char *neap_safetensors_metadata(const neap_safetensors *file,
                                               const char *key); /* NULL when absent */
/* Keys of the metadata, k = 0.. in the file's order; NULL past the end. */
NEAP_API const char *neap_safetensors_metadata_key(const neap_safetensors *file, int k);
/* Copies tensor i into a tensor of the same dtype and shape (DTYPE, SHAPE), through 1 MiB of host
 * memory. The tensor is unaltered unless reading the file fails half-way. */
NEAP_API int neap_safetensors_read(neap_safetensors *file, int i, double tensor);

#endif
