/*
 * regraph: a CUDA memory allocator for programs that capture CUDA graphs on several streams.
 *
 * Link with -lregraph_c, or with libregraph_c.a. No CUDA toolkit is needed: libcuda is opened when the
 * first engine on a GPU is created. capi/examples/multi_stream.c is a program that uses all this.
 *
 * Calls. A call that can fail returns a regraph_error, and nothing else that it came to: results are
 * written through pointers, and only where it succeeds. No call unwinds or exits: a bug of the
 * library's is REGRAPH_ERROR_PANIC.
 *
 * Pointers. One that is null where it must not be is REGRAPH_ERROR_NULL. Any other one points to what
 * the call's documentation says: an object that was created and not destroyed, room for a result, or a
 * text that ends with a nul and is UTF-8. The library keeps none of the caller's but user_data. Handles
 * of CUDA's (streams, graphs) are never looked behind; they must name what is alive.
 *
 * Threads. "Any" means: on any thread, and on several at once. "Not while another thread captures into
 * the same graph" holds for streams that capture: their graph is read. "The one that captures" is the
 * thread that makes the stream calls of the capture.
 *
 * Units. All sizes are bytes.
 *
 * Stability. Structures keep their size and layout within a major version (a minor one before 1.0.0):
 * later versions give names to `unused` fields. Those that only the library makes may grow at the end.
 *
 * This file is made from the sources in capi/src: do not edit it. What makes it anew:
 *     REGRAPH_WRITE_HEADER=1 cargo test -p regraph-capi header
 */

#ifndef REGRAPH_H
#define REGRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The header's major version.
 */
#define REGRAPH_VERSION_MAJOR 0

/**
 * The header's minor version.
 */
#define REGRAPH_VERSION_MINOR 1

/**
 * The header's patch version.
 */
#define REGRAPH_VERSION_PATCH 0

/**
 * The header's version as one number: major * 1000000 + minor * 1000 + patch.
 */
#define REGRAPH_VERSION 1000

/**
 * No limit, or a number of bytes that nobody knows.
 */
#define REGRAPH_NO_LIMIT UINT64_MAX

/**
 * Unsafe calls are forbidden to every thread that is not relaxed (CU_STREAM_CAPTURE_MODE_GLOBAL).
 */
#define REGRAPH_CAPTURE_GLOBAL 0

/**
 * Unsafe calls are forbidden to the capturing thread (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).
 */
#define REGRAPH_CAPTURE_THREAD_LOCAL 1

/**
 * Unsafe calls are allowed (CU_STREAM_CAPTURE_MODE_RELAXED).
 */
#define REGRAPH_CAPTURE_RELAXED 2

/**
 * What a call came to. Every call that can fail returns one; regraph_last_error_message() says more.
 * Unless it says otherwise, a call that fails has changed nothing, and has written nothing through
 * its pointers.
 *
 * The numbers are stable. A later version may add some: treat an unknown one as a failure.
 */
enum regraph_error
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Success.
     */
    REGRAPH_OK = 0,
    /**
     * A pointer that must not be null was.
     */
    REGRAPH_ERROR_NULL = 1,
    /**
     * A text is not UTF-8.
     */
    REGRAPH_ERROR_INVALID_TEXT = 2,
    /**
     * A number is out of its bounds.
     */
    REGRAPH_ERROR_INVALID_ARGUMENT = 3,
    /**
     * A text of settings, or an environment variable that holds one, is wrong. The message says
     * where, and what is allowed.
     */
    REGRAPH_ERROR_SETTINGS = 4,
    /**
     * The call panicked inside the library, which is a bug of the library's. What the call was to do
     * may be half done; engines whose books may be wrong hand nothing out any more
     * (REGRAPH_ERROR_POISONED).
     */
    REGRAPH_ERROR_PANIC = 5,
    /**
     * The library was built without this.
     */
    REGRAPH_ERROR_NOT_SUPPORTED = 6,
    /**
     * A regraph_sim call on an engine that is not simulated.
     */
    REGRAPH_ERROR_NOT_SIMULATED = 7,
    /**
     * A file could not be written.
     */
    REGRAPH_ERROR_IO = 8,
    /**
     * The engine keeps no journal: set "check:True" or regraph_config_set_journal().
     */
    REGRAPH_ERROR_NO_JOURNAL = 9,
    /**
     * The capture's journal has no trace: it is beyond the numbers of the format.
     */
    REGRAPH_ERROR_NO_TRACE = 10,
    /**
     * There is no CUDA driver on this machine.
     */
    REGRAPH_ERROR_NO_DRIVER = 20,
    /**
     * The CUDA driver is older than 12.3.
     */
    REGRAPH_ERROR_DRIVER_TOO_OLD = 21,
    /**
     * The driver refused a call: regraph_last_driver_code() has its code.
     */
    REGRAPH_ERROR_DRIVER = 22,
    /**
     * A request for nothing.
     */
    REGRAPH_ERROR_ZERO_BYTES = 30,
    /**
     * No memory is proven free for the request and no more is to be had. The capture, if one is
     * under way, is unharmed.
     */
    REGRAPH_ERROR_OUT_OF_MEMORY = 31,
    /**
     * The block is not live: it was freed before, or belongs to another engine.
     */
    REGRAPH_ERROR_UNKNOWN_BLOCK = 32,
    /**
     * There is no such pool.
     */
    REGRAPH_ERROR_UNKNOWN_POOL = 33,
    /**
     * There is no such capture under way.
     */
    REGRAPH_ERROR_UNKNOWN_CAPTURE = 34,
    /**
     * The capture was ended or abandoned here and still captures: end it on the stream too.
     */
    REGRAPH_ERROR_CAPTURE_ENDED = 35,
    /**
     * There is no such graph.
     */
    REGRAPH_ERROR_UNKNOWN_GRAPH = 36,
    /**
     * The stream does not capture.
     */
    REGRAPH_ERROR_NOT_CAPTURING = 37,
    /**
     * An invalid operation has ruined the capture. What the engine did in it is rolled back.
     */
    REGRAPH_ERROR_CAPTURE_INVALIDATED = 38,
    /**
     * The pool cannot be destroyed yet: blocks, captures, graphs or work use it.
     */
    REGRAPH_ERROR_POOL_IN_USE = 39,
    /**
     * The pool cannot be suspended now: captures or work use it.
     */
    REGRAPH_ERROR_POOL_BUSY = 40,
    /**
     * The pool's memory would not come back at the same addresses.
     */
    REGRAPH_ERROR_CANNOT_SUSPEND = 41,
    /**
     * The pool is suspended: resume it first.
     */
    REGRAPH_ERROR_POOL_SUSPENDED = 42,
    /**
     * There is not enough memory to resume the pool. It stays suspended.
     */
    REGRAPH_ERROR_RESUME_OUT_OF_MEMORY = 43,
    /**
     * A stream was set back behind work that a reuse relied on. The capture is rolled back; its
     * graph must not be launched.
     */
    REGRAPH_ERROR_SET_BACK = 44,
    /**
     * The per-thread default stream is a different stream in every thread, and is refused.
     */
    REGRAPH_ERROR_PER_THREAD_STREAM = 45,
    /**
     * The stream cannot be retired yet: it captures, or was recorded for a live block.
     */
    REGRAPH_ERROR_STREAM_IN_USE = 46,
    /**
     * A thread panicked inside the engine: nothing is handed out any more.
     */
    REGRAPH_ERROR_POISONED = 47,
    /**
     * The checker refuses the capture. It is rolled back; its graph must not be launched.
     */
    REGRAPH_ERROR_REFUSED = 48,
    /**
     * The capture uses a block later than was recorded, and
     * regraph_config_set_refuse_late_uses() is set. It is rolled back; its graph must not be
     * launched.
     */
    REGRAPH_ERROR_LATE_USE = 49,
    /**
     * The memory of the capture cannot come at its end.
     */
    REGRAPH_ERROR_CANNOT_PLAN = 50,
    /**
     * There is not as much memory as the capture needs at its end. It is rolled back; its graph must
     * not be launched.
     */
    REGRAPH_ERROR_PLAN_OUT_OF_MEMORY = 51,
    /**
     * The capture was ended without its graph, so its blocks never got memory of their own. The graph
     * must not be launched.
     */
    REGRAPH_ERROR_UNPLANNED = 52,
    /**
     * The stream is capturing, and the call needs one that is not.
     */
    REGRAPH_ERROR_CAPTURING = 53,
    /**
     * The end of an earlier launch in the pool could not be marked, so no launch can be ordered after
     * it. Release the pool's graphs and create another pool.
     */
    REGRAPH_ERROR_ORDER_LOST = 54,
    /**
     * The caller ended the graph's capture with regraph_end_capture(), so its executables are the
     * caller's: see regraph_launch_executable().
     */
    REGRAPH_ERROR_NOT_INSTANTIATED = 55,
    /**
     * Live blocks that belong to no graph lie in the pool; see regraph_pool_suspend_discarding().
     */
    REGRAPH_ERROR_POOL_HAS_BLOCKS = 56,
    /**
     * Anything else; the message says what.
     */
    REGRAPH_ERROR_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum regraph_error regraph_error;
#else
typedef int32_t regraph_error;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Why a stream may not take a free range. A later version may add some: treat an unknown one as a
 * reason, too.
 */
enum regraph_refusal
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It may.
     */
    REGRAPH_REFUSAL_NONE = 0,
    /**
     * `marker` must be completed first, and no path of edges that prove it leads from it to the
     * stream's terminals. `stream` owned the block.
     */
    REGRAPH_REFUSAL_MARKER = 1,
    /**
     * The setting "reuse" gives it to its own stream only: `stream`.
     */
    REGRAPH_REFUSAL_OWN_STREAM_ONLY = 2,
    /**
     * `stream`, which is not in the block's capture, uses it.
     */
    REGRAPH_REFUSAL_OUTSIDE_STREAM = 3,
    /**
     * `stream` was set back, or went on behind an edge that proves nothing, while it used it.
     */
    REGRAPH_REFUSAL_UNTRUSTED = 4,
    /**
     * `capture` is younger, uses the same pool and is under way.
     */
    REGRAPH_REFUSAL_NESTED_CAPTURE = 5,
    /**
     * The setting "reuse" holds it until the capture's end.
     */
    REGRAPH_REFUSAL_POLICY = 6,
    /**
     * `capture` was under way beside it.
     */
    REGRAPH_REFUSAL_CAPTURE = 7,
    /**
     * Work of `stream` outside captures has not completed.
     */
    REGRAPH_REFUSAL_OUTSIDE_WORK = 8,
    /**
     * `stream` gave it back outside captures: it may take it at once, others when its work has
     * completed.
     */
    REGRAPH_REFUSAL_ORDERED = 9,
    /**
     * It belongs to another capture that is under way.
     */
    REGRAPH_REFUSAL_OTHER_CAPTURE = 10,
    /**
     * A graph of the pool uses it, and the stream that asks is not capturing.
     */
    REGRAPH_REFUSAL_USED_BY_GRAPH = 11,
    /**
     * Its pool is suspended: there is no memory behind it.
     */
    REGRAPH_REFUSAL_SUSPENDED = 12,
    /**
     * Another reason; `text` says which.
     */
    REGRAPH_REFUSAL_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum regraph_refusal regraph_refusal;
#else
typedef int32_t regraph_refusal;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * CUDA's executable graph.
 */
typedef struct CUgraphExec_st CUgraphExec_st;

/**
 * CUDA's node of a graph.
 */
typedef struct CUgraphNode_st CUgraphNode_st;

/**
 * CUDA's graph.
 */
typedef struct CUgraph_st CUgraph_st;

/**
 * CUDA's stream.
 */
typedef struct CUstream_st CUstream_st;

/**
 * Choices for engines. Opaque, with a call for each choice, so that later versions can have more.
 * Any number of engines may be created with one; it may be destroyed as soon as they are.
 *
 * Threads: any, but one at a time for each config.
 */
typedef struct regraph_config regraph_config;

/**
 * An allocator on one device.
 *
 * All calls on it may come from any thread, at once, but for regraph_engine_destroy(). Calls that
 * concern streams of a capture read its graph and must not run while another thread captures into
 * the same graph: CUDA's graph objects are not thread-safe. A stream belongs to the thread that named
 * it last (to regraph_allocate(), regraph_begin_capture() or regraph_mark_stream()): a thread that
 * is to capture on a stream which another one has used names it first.
 *
 * A stream that blocks were allocated on outside captures lives until regraph_retire_stream() has
 * been told of its end, or until the engine is destroyed.
 */
typedef struct regraph_engine regraph_engine;

/**
 * What one stream may take of a pool's free ranges, and why it may not take the others.
 */
typedef struct regraph_explanation regraph_explanation;

/**
 * The blocks that had not been freed at one time, in order of addresses.
 */
typedef struct regraph_leak_list regraph_leak_list;

/**
 * The name of a pool. No name is given twice in a process: that of a pool that was destroyed, or of
 * another engine's, is an error and nothing worse.
 */
typedef struct regraph_pool {
    /**
     * The library's.
     */
    uint64_t words[2];
} regraph_pool;

/**
 * A stream: the same type as CUstream and cudaStream_t. NULL is the legacy default stream.
 */
typedef struct CUstream_st *regraph_stream;

/**
 * The name of a live block. No name is given twice in a process: that of a block that was freed, or
 * of another engine's, is an error and nothing worse.
 */
typedef struct regraph_block_id {
    /**
     * The library's.
     */
    uint64_t words[3];
} regraph_block_id;

/**
 * A block that was handed out.
 */
typedef struct regraph_block {
    /**
     * Its name, for later calls.
     */
    struct regraph_block_id id;
    /**
     * Where it lies: a device address, a multiple of 512.
     */
    uint64_t address;
    /**
     * What was asked for, in bytes.
     */
    uint64_t bytes;
} regraph_block;

/**
 * The driver's number of a capture, as cuStreamGetCaptureInfo() tells it. Unique in a process.
 */
typedef uint64_t regraph_capture_id;

/**
 * Bounds of the memory that comes at a capture's end. All zero for none.
 */
typedef struct regraph_plan_options {
    /**
     * The most mappings; zero for as many as the least memory needs.
     */
    uint64_t max_mappings;
    /**
     * The most bytes of a piece of memory; zero for any. Pools of many graphs need no more than their
     * largest with pieces of the device's granularity.
     */
    uint64_t max_piece_bytes;
    /**
     * The most time for mapping, as a share of the capture's own, in percent; zero for any.
     */
    uint64_t max_share_percent;
    /**
     * Zero. Later versions may give these names.
     */
    uint64_t unused[5];
} regraph_plan_options;

/**
 * A graph: the same type as CUgraph and cudaGraph_t.
 */
typedef struct CUgraph_st *regraph_graph;

/**
 * The name of a graph's claim on the memory of its pools. No name is given twice in a process, as for
 * pools.
 */
typedef struct regraph_graph_id {
    /**
     * The library's.
     */
    uint64_t words[2];
} regraph_graph_id;

/**
 * What a capture came to.
 */
typedef struct regraph_capture_report {
    /**
     * The capture.
     */
    regraph_capture_id capture;
    /**
     * The graph's claim on its pools: release it when the graph is destroyed.
     */
    struct regraph_graph_id graph;
    /**
     * Nodes that the engine saw.
     */
    uint64_t nodes;
    /**
     * Blocks allocated in the capture.
     */
    uint64_t blocks;
    /**
     * How often the driver was asked for a node's dependencies while the capture was recorded.
     */
    uint64_t dependency_queries;
    /**
     * Nodes that use a block later than was recorded, as far as their parameters show it; at most
     * 100. Zero unless regraph_config_set_find_late_uses() is set and a journal is kept.
     */
    uint64_t late_uses;
    /**
     * Whether the checker judged the capture.
     */
    bool verified;
    /**
     * The memory that came at the capture's end, in bytes; zero where none did
     * (regraph_plan_capture()).
     */
    uint64_t planned_bytes;
    /**
     * Of that, what is new: the rest is shared with other graphs of the pool.
     */
    uint64_t planned_new_bytes;
    /**
     * The least that these blocks need in whole units of the device's granularity, alone, in bytes.
     */
    uint64_t planned_minimum_bytes;
    /**
     * How often pieces of that memory are mapped.
     */
    uint64_t mappings;
    /**
     * Blocks that regraph_repeat_stream_capture() planned a place for; zero without it.
     */
    uint64_t layout_blocks;
    /**
     * Of them those that lie there.
     */
    uint64_t layout_followed;
} regraph_capture_report;

/**
 * An executable graph: the same type as CUgraphExec and cudaGraphExec_t.
 */
typedef struct CUgraphExec_st *regraph_executable;

/**
 * A node of a graph: the same type as CUgraphNode and cudaGraphNode_t. Unique within a capture.
 */
typedef struct CUgraphNode_st *regraph_node;

/**
 * A free range as one stream sees it. Later versions may add fields at the end.
 */
typedef struct regraph_free_range {
    /**
     * Where it lies.
     */
    uint64_t address;
    /**
     * Its size, in bytes.
     */
    uint64_t bytes;
    /**
     * The number, in messages and journals, of the last block that lay there; with `has_block`.
     */
    uint64_t block;
    /**
     * The node that must be completed first; NULL where the refusal names none.
     */
    regraph_node marker;
    /**
     * The stream that the refusal names; with `has_stream`, for NULL is a stream.
     */
    regraph_stream stream;
    /**
     * The capture that the refusal names, or 0.
     */
    regraph_capture_id capture;
    /**
     * The refusal in words; empty where there is none. Lives as long as the explanation.
     */
    const char *text;
    /**
     * Why the stream may not take it.
     */
    regraph_refusal refusal;
    /**
     * Whether a block lay there.
     */
    bool has_block;
    /**
     * Whether the refusal names a stream.
     */
    bool has_stream;
} regraph_free_range;

/**
 * One figure over time.
 */
typedef struct regraph_figure {
    /**
     * Now.
     */
    uint64_t current;
    /**
     * The highest it has been since regraph_reset_peaks().
     */
    uint64_t peak;
    /**
     * By how much it has risen in all since regraph_reset_accumulated().
     */
    uint64_t allocated;
    /**
     * By how much it has fallen in all since then.
     */
    uint64_t freed;
} regraph_figure;

/**
 * The figures of some memory, with the meanings that PyTorch gives them.
 */
typedef struct regraph_figures {
    /**
     * Blocks that have not been freed.
     */
    struct regraph_figure allocation;
    /**
     * Their bytes as placed, rounded up.
     */
    struct regraph_figure allocated_bytes;
    /**
     * Their bytes as asked for.
     */
    struct regraph_figure requested_bytes;
    /**
     * Blocks that have not been freed, and freed ones that nobody may take yet.
     */
    struct regraph_figure active;
    /**
     * Their bytes.
     */
    struct regraph_figure active_bytes;
    /**
     * Free pieces of segments that are, or may be, in use elsewhere.
     */
    struct regraph_figure inactive_split;
    /**
     * Their bytes.
     */
    struct regraph_figure inactive_split_bytes;
    /**
     * Pieces of memory held from the driver: mappings and allocations.
     */
    struct regraph_figure segment;
    /**
     * Their bytes.
     */
    struct regraph_figure reserved_bytes;
    /**
     * Bytes of suspended pools that were given back to the driver, and that the pool asks for again
     * when it is resumed.
     */
    struct regraph_figure suspended_bytes;
    /**
     * Zero. Later versions may give these names.
     */
    struct regraph_figure unused[6];
} regraph_figures;

/**
 * Counts of what an engine did.
 */
typedef struct regraph_counts {
    /**
     * Requests that were tried again after memory had been given back.
     */
    uint64_t num_alloc_retries;
    /**
     * Requests that failed for want of memory.
     */
    uint64_t num_ooms;
    /**
     * How often the host was made to wait for the work of streams.
     */
    uint64_t num_sync_all_streams;
    /**
     * Pieces of memory got from the driver.
     */
    uint64_t num_device_alloc;
    /**
     * Pieces given back.
     */
    uint64_t num_device_free;
    /**
     * Zero. Later versions may give these names.
     */
    uint64_t unused[11];
} regraph_counts;

/**
 * The figures of an engine or of a pool. At any time reserved_bytes + suspended_bytes = active_bytes
 * + inactive_split_bytes, and active_bytes is allocated_bytes and what waits.
 */
typedef struct regraph_statistics {
    /**
     * All blocks.
     */
    struct regraph_figures all;
    /**
     * Blocks of up to 1 MiB. Captures into a pool that has a graph may put any block into either.
     */
    struct regraph_figures small_pool;
    /**
     * Larger blocks.
     */
    struct regraph_figures large_pool;
    /**
     * Counts of what happened on the whole device; the same for every pool.
     */
    struct regraph_counts counts;
} regraph_statistics;

/**
 * What came of giving memory back. All in bytes.
 */
typedef struct regraph_emptied {
    /**
     * Given back to the driver.
     */
    uint64_t released;
    /**
     * Free, but for work that may still use it: it can be given back when that has completed.
     */
    uint64_t waiting;
    /**
     * Still held.
     */
    uint64_t reserved;
    /**
     * Zero. Later versions may give this a name.
     */
    uint64_t unused;
} regraph_emptied;

/**
 * A block that has not been freed. Later versions may add fields at the end.
 */
typedef struct regraph_leak {
    /**
     * The block.
     */
    struct regraph_block_id block;
    /**
     * Where it lies.
     */
    uint64_t address;
    /**
     * What was asked for, in bytes.
     */
    uint64_t bytes;
    /**
     * Its stream.
     */
    regraph_stream stream;
    /**
     * All of this in words, with the host's frames that asked for it, innermost first, where stacks
     * are recorded (the setting "stacks:True"). Lives as long as the list.
     */
    const char *text;
    /**
     * Its pool.
     */
    struct regraph_pool pool;
} regraph_leak;

/**
 * Why a request could not be met. All in bytes. Later versions may add fields at the end.
 */
typedef struct regraph_out_of_memory {
    /**
     * What was asked for.
     */
    uint64_t requested;
    /**
     * The most the pool may hold, or REGRAPH_NO_LIMIT.
     */
    uint64_t limit;
    /**
     * Held by the pool.
     */
    uint64_t reserved;
    /**
     * In the pool's blocks that have not been freed.
     */
    uint64_t allocated;
    /**
     * Free, and the stream could take it if it were in one piece large enough.
     */
    uint64_t takeable;
    /**
     * Free, but not for this stream now.
     */
    uint64_t waiting;
    /**
     * The most that all pools may hold, or REGRAPH_NO_LIMIT.
     */
    uint64_t engine_limit;
    /**
     * Held by all pools of the engine.
     */
    uint64_t engine_reserved;
    /**
     * In blocks of all pools that have not been freed, but for suspended pools.
     */
    uint64_t engine_allocated;
    /**
     * Given back by suspended pools, which ask for it again when they are resumed.
     */
    uint64_t engine_suspended;
    /**
     * Held by pools that belong to graphs, or to captures under way.
     */
    uint64_t in_graphs;
    /**
     * Free on the device; REGRAPH_NO_LIMIT where the driver did not tell.
     */
    uint64_t device_free;
    /**
     * Of the device; REGRAPH_NO_LIMIT where the driver did not tell.
     */
    uint64_t device_total;
    /**
     * The stream that asked.
     */
    regraph_stream stream;
    /**
     * All of this in words, with advice.
     */
    const char *text;
    /**
     * The pool.
     */
    struct regraph_pool pool;
    /**
     * Whether the stream captures, so that nothing could be waited for.
     */
    bool capturing;
    /**
     * Whether segments can grow (the setting "expandable_segments").
     */
    bool growable;
} regraph_out_of_memory;

/**
 * Told of every request that fails for want of memory, on the thread that made it, before the
 * request returns and with none of the engine's locks held. The report lives as long as the call.
 *
 * It may call the engine, but neither destroy it nor begin, end or abandon a capture of the stream
 * that asked. It must return: no longjmp out of it, no C++ exception (the program is ended by one).
 */
typedef void (*regraph_out_of_memory_callback)(const struct regraph_out_of_memory *report,
                                               void *user_data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The library's version as one number, to compare with REGRAPH_VERSION. Before 1.0.0 a library fits
 * a header if major and minor versions are the same; from then on if the major version is the same
 * and the library is not older.
 *
 * Threads: any.
 */
uint32_t regraph_version(void);

/**
 * The library's version as text, such as "0.1.0". Never freed.
 *
 * Threads: any.
 */
const char *regraph_version_string(void);

/**
 * The name of a code, such as "REGRAPH_ERROR_OUT_OF_MEMORY"; "unknown" for a number that is none.
 * Never freed.
 *
 * Threads: any.
 */
const char *regraph_error_name(int32_t error);

/**
 * What the latest call that failed on this thread failed with, in words: for people, not to be
 * parsed. Valid until the next call that fails on this thread; empty if none has.
 *
 * Threads: any; each has its own message.
 */
const char *regraph_last_error_message(void);

/**
 * The driver's code (CUresult) of the latest call that failed on this thread; 0 where that was not
 * refused by the driver.
 *
 * Threads: any; each has its own code.
 */
uint32_t regraph_last_driver_code(void);

/**
 * Creates a config with every choice at its default. To be destroyed with
 * regraph_config_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_create(struct regraph_config **config);

/**
 * Destroys a config. Nothing for NULL.
 */
void regraph_config_destroy(struct regraph_config *config);

/**
 * Replaces all settings by those of a text such as "programmatic:lag,memory_limit_mb:4096": keys and
 * values as in the environment variable REGRAPH_ALLOC_CONF, whose form is that of
 * PYTORCH_ALLOC_CONF. What the text leaves out gets its default.
 *
 * Errors: REGRAPH_ERROR_SETTINGS, whose message names the byte and what is allowed there;
 * REGRAPH_ERROR_INVALID_TEXT; REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_settings(struct regraph_config *config,
                                          const char *settings);

/**
 * Replaces all settings by those of the environment variables REGRAPH_ALLOC_CONF and
 * REGRAPH_NO_MEMORY_CACHING. Engines never read them by themselves.
 *
 * Errors: REGRAPH_ERROR_SETTINGS, whose message names the variable; REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_settings_from_environment(struct regraph_config *config);

/**
 * Whether captures keep a journal even if the setting "check" is False. Default: no.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_journal(struct regraph_config *config, bool journal);

/**
 * Whether the end of a capture looks among the parameters of the graph's nodes for uses of blocks
 * later than was recorded, counts them in its report and writes them to standard error. Only where
 * captures keep a journal. Default: in debug builds of the library, and there only.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_find_late_uses(struct regraph_config *config, bool find);

/**
 * Whether a capture with such a use is refused: REGRAPH_ERROR_LATE_USE. Needs
 * regraph_config_set_find_late_uses(). Default: no, for a number may look like an address.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_refuse_late_uses(struct regraph_config *config, bool refuse);

/**
 * Whether figures are kept. Without them all statistics are zero, but for reserved and suspended
 * memory, segments and counts of calls. Default: yes.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_statistics(struct regraph_config *config, bool statistics);

/**
 * Whether blocks that were never freed are written to standard error when the engine is destroyed.
 * Default: yes.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_report_leaks(struct regraph_config *config, bool report);

/**
 * Creates an engine on a CUDA device and retains that device's primary context. libcuda is opened
 * here, not when the library is loaded. `config` is NULL for the default, and is copied. To be
 * destroyed with regraph_engine_destroy().
 *
 * Threads: any. The calling thread's current context stays as it is, here and in every other call; a
 * thread that had none keeps the device's primary context.
 *
 * Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER, for a device
 * that does not exist among others; REGRAPH_ERROR_NOT_SUPPORTED where the library was built without
 * CUDA; REGRAPH_ERROR_NULL.
 */
regraph_error regraph_engine_create_cuda(uint32_t ordinal,
                                         const struct regraph_config *config,
                                         struct regraph_engine **engine);

/**
 * Creates an engine on a simulated device with `total_bytes` of memory, 0 for 141 GiB, in pieces of
 * 2 MiB. Needs no GPU and no driver; the calls whose names begin with regraph_sim are its host side.
 * `config` is NULL for the default, and is copied. To be destroyed with regraph_engine_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_engine_create_sim(uint64_t total_bytes,
                                        const struct regraph_config *config,
                                        struct regraph_engine **engine);

/**
 * Destroys an engine and gives back the memory of every pool that no live block, capture, graph or
 * running work uses; the rest is left to the driver. Blocks that were never freed are written to
 * standard error, unless the config says otherwise. Nothing for NULL.
 *
 * Threads: any, while no other call on the engine runs, and none comes later.
 */
void regraph_engine_destroy(struct regraph_engine *engine);

/**
 * Creates an empty pool that may hold `max_bytes`, or REGRAPH_NO_LIMIT. Memory comes with the first
 * allocation. Graphs of one pool share memory and never run at once: give graphs that are to run at
 * the same time pools of their own.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_pool_create(const struct regraph_engine *engine,
                                  uint64_t max_bytes,
                                  struct regraph_pool *pool);

/**
 * Gives all memory of a pool back to the driver and forgets the pool.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POOL_IN_USE while a block of it is live, a capture into it is under way, a
 * graph of it exists or work may still use a freed block; REGRAPH_ERROR_UNKNOWN_POOL;
 * REGRAPH_ERROR_DRIVER, when the pool is gone but some of its memory may not have been given back.
 */
regraph_error regraph_pool_destroy(const struct regraph_engine *engine, struct regraph_pool pool);

/**
 * Gives a pool up: it is destroyed now, or when its last block is freed, its last graph is released
 * and their work has completed. Nothing may be asked of the pool any more; its blocks and graphs may
 * be used as before. Waits for launches of graphs that were released while they ran.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_release(const struct regraph_engine *engine,
                                   struct regraph_pool pool);

/**
 * Gives all physical memory of a pool back to the driver and keeps its addresses, blocks and graphs,
 * until regraph_pool_resume(). Everything that the memory held is lost. Waits for the launches that
 * regraph_launch_graph() and regraph_launch_executable() made of the pool's graphs; such launches are
 * refused until the pool is resumed. `bytes` gets how many bytes went; it may be NULL.
 *
 * No other work that uses memory of the pool may be running, or be submitted before the pool is
 * resumed: launches of its graphs by other calls, and work on blocks of it that are live. The engine
 * sees neither.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POOL_HAS_BLOCKS, where blocks are live that belong to no graph;
 * REGRAPH_ERROR_POOL_BUSY; REGRAPH_ERROR_CANNOT_SUSPEND; REGRAPH_ERROR_ORDER_LOST;
 * REGRAPH_ERROR_UNKNOWN_POOL. After REGRAPH_ERROR_DRIVER what had gone by then is gone, and suspending
 * it again goes on with the rest.
 */
regraph_error regraph_pool_suspend(const struct regraph_engine *engine,
                                   struct regraph_pool pool,
                                   uint64_t *bytes);

/**
 * Like regraph_pool_suspend(), but what live blocks hold is lost too, and they stay live: at the same
 * addresses, and with any contents once the pool is resumed.
 *
 * Threads: any.
 *
 * Errors: as regraph_pool_suspend(), but for REGRAPH_ERROR_POOL_HAS_BLOCKS.
 */
regraph_error regraph_pool_suspend_discarding(const struct regraph_engine *engine,
                                              struct regraph_pool pool,
                                              uint64_t *bytes);

/**
 * Maps memory again wherever a suspended pool had some. What it holds is anything. `bytes` gets how
 * many bytes came back, 0 for a pool that is not suspended; it may be NULL. Where memory is short it
 * waits for streams, as regraph_allocate() does outside captures.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_RESUME_OUT_OF_MEMORY, REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_DRIVER. The
 * pool stays suspended.
 */
regraph_error regraph_pool_resume(const struct regraph_engine *engine,
                                  struct regraph_pool pool,
                                  uint64_t *bytes);

/**
 * Whether a pool is suspended.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_is_suspended(const struct regraph_engine *engine,
                                        struct regraph_pool pool,
                                        bool *suspended);

/**
 * Makes what `stream` is given from now on come after every launch that regraph_launch_graph() and
 * regraph_launch_executable() made of the pool's graphs so far: before a graph's inputs are filled
 * anew, for instance. Costs nothing on the stream of the last launch.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_CAPTURING,
 * REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_pool_follow(const struct regraph_engine *engine,
                                  struct regraph_pool pool,
                                  regraph_stream stream);

/**
 * Waits until every launch that regraph_launch_graph() and regraph_launch_executable() made of the
 * pool's graphs has completed, and gives back the memory of graphs that were released meanwhile.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_pool_synchronize(const struct regraph_engine *engine,
                                       struct regraph_pool pool);

/**
 * Hands out a block of at least `bytes` to `stream`.
 *
 * While `stream` captures, the block is new memory, or memory of which every earlier user is proven
 * to be completed before the stream's next node starts. Outside captures it is memory that no graph
 * of the pool will ever use, and that nobody uses any more or that `stream` itself used last. Only
 * where memory is short, and outside captures, does the call wait for work; it then holds the
 * engine's lock, so host callbacks on a stream must not call the engine.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_ZERO_BYTES; REGRAPH_ERROR_OUT_OF_MEMORY, after which everything goes on as
 * before; REGRAPH_ERROR_CAPTURE_INVALIDATED; REGRAPH_ERROR_CAPTURE_ENDED;
 * REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_POOL_SUSPENDED; REGRAPH_ERROR_PER_THREAD_STREAM;
 * REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_allocate(const struct regraph_engine *engine,
                               struct regraph_pool pool,
                               uint64_t bytes,
                               regraph_stream stream,
                               struct regraph_block *block);

/**
 * The same on memory of its own: while `stream` captures, memory that is there at once, and that is
 * never shared and never moved as long as a graph of the capture lives, whether the block is freed or
 * not. For memory that is registered with a communication library, exported, or used by a kernel that
 * goes on running. Outside captures it is the same as regraph_allocate(): keep the block for as long
 * as it must not be shared.
 *
 * Threads and errors: as regraph_allocate().
 */
regraph_error regraph_allocate_fixed(const struct regraph_engine *engine,
                                     struct regraph_pool pool,
                                     uint64_t bytes,
                                     regraph_stream stream,
                                     struct regraph_block *block);

/**
 * Says that `stream` uses the block at some time before its free. The use must be ordered after the
 * allocation, by an event for instance. A block's own stream needs no record.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_record_stream(const struct regraph_engine *engine,
                                    struct regraph_block_id block,
                                    regraph_stream stream);

/**
 * Says that what `stream` holds so far includes its last use of the block, so that the block's
 * marker on it is this point and not the free. A later regraph_record_stream() takes this back. For a
 * block from outside captures it is the same as that.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_CAPTURE_INVALIDATED,
 * REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_record_use(const struct regraph_engine *engine,
                                 struct regraph_block_id block,
                                 regraph_stream stream);

/**
 * Frees a block. In a capture its free markers are the terminals, now, of its own stream and of
 * every stream that was recorded for it, or those of the last use where one was recorded. Outside
 * captures its own stream may have it back at once, unless other streams used it. Nothing is waited
 * for, and work that was submitted before goes on.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, where the block was freed before.
 */
regraph_error regraph_free(const struct regraph_engine *engine, struct regraph_block_id block);

/**
 * Frees a block in the order of `stream`, which need not be its own: the same as
 * regraph_record_stream() and regraph_free().
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_free_from(const struct regraph_engine *engine,
                                struct regraph_block_id block,
                                regraph_stream stream);

/**
 * Tells the engine that `stream` has begun to capture and that the capture uses `pool`. Call it
 * after cuStreamBeginCapture(). `capture` gets the capture's number.
 *
 * The first allocation on a stream that captures does the same. A capture whose graph has
 * conditional nodes must be announced, by either, before one of their bodies is captured into the
 * same pool, and ended after. A capture that uses blocks of a pool it does not allocate from should
 * be announced for that pool too.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_NOT_CAPTURING, REGRAPH_ERROR_CAPTURE_INVALIDATED,
 * REGRAPH_ERROR_CAPTURE_ENDED, REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED,
 * REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_begin_capture(const struct regraph_engine *engine,
                                    struct regraph_pool pool,
                                    regraph_stream stream,
                                    regraph_capture_id *capture);

/**
 * Gives a capture under way its memory at its end, as little as it can run on; with `options` NULL its
 * memory comes with its blocks, whatever the settings say. Call it before anything is allocated in the
 * capture.
 *
 * Blocks of at least half the device's granularity then have addresses and no memory of their own until
 * regraph_end_capture() has returned: the graph is not launched before, nothing outside the capture
 * touches them, and nothing of them is registered or exported. Memory for such uses comes from
 * regraph_allocate_fixed().
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_CANNOT_PLAN where the device has no virtual
 * memory management. regraph_end_capture() may then fail with REGRAPH_ERROR_PLAN_OUT_OF_MEMORY.
 */
regraph_error regraph_plan_capture(const struct regraph_engine *engine,
                                   regraph_capture_id capture,
                                   const struct regraph_plan_options *options);

/**
 * Ends a capture. `graph` is the handle under capture, just before cuStreamEndCapture(), or the one
 * that this gave. The first is better: the engine can then look at the streams once more. Every use
 * of the capture's blocks is recorded before. `report` may be NULL, but its graph id is what
 * regraph_release_graph() takes.
 *
 * With the setting "check" the checker judges the capture on the finished graph. If it accepts, what
 * the capture freed is there for later captures into the same pools, blocks not freed stay allocated
 * as the graph's outputs, and the pools belong to one more graph. Graphs of one pool must never run
 * at once: regraph_launch_executable() sees to that.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_REFUSED, REGRAPH_ERROR_SET_BACK, REGRAPH_ERROR_LATE_USE: the graph must not
 * be launched, and the capture is rolled back as by regraph_abandon_capture().
 * REGRAPH_ERROR_PLAN_OUT_OF_MEMORY, likewise, where memory was to come at the end
 * (regraph_plan_capture()). REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_UNKNOWN_CAPTURE.
 * REGRAPH_ERROR_INVALID_ARGUMENT for a capture of regraph_begin_stream_capture().
 */
regraph_error regraph_end_capture(const struct regraph_engine *engine,
                                  regraph_capture_id capture,
                                  regraph_graph graph,
                                  struct regraph_capture_report *report);

/**
 * Rolls back every decision taken in a capture whose graph will never run. Blocks that it allocated
 * and did not free stay live until freed; nothing else may be done with them. A capture of
 * regraph_begin_stream_capture() ends on its stream too.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE.
 */
regraph_error regraph_abandon_capture(const struct regraph_engine *engine,
                                      regraph_capture_id capture);

/**
 * The least memory that the blocks of a capture under way need so far, in bytes, in any placement that
 * adds no edges to the graph: regraph_graph_minimum_bytes() when the capture has ended. Takes some
 * milliseconds, or about a second for 100,000 blocks.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_NO_JOURNAL where captures keep no journal.
 */
regraph_error regraph_capture_minimum_bytes(const struct regraph_engine *engine,
                                            regraph_capture_id capture,
                                            uint64_t *bytes);

/**
 * Looks at a stream, so that the engine knows its terminals as they are now. A host that sets a
 * capturing stream's terminals back by hand (cuStreamUpdateCaptureDependencies()) calls this before
 * and after.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_observe_stream(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Marks where a stream stands outside captures, so that what it gave back up to now can be told to
 * be free for others once it has completed that; worth a call before it captures. The stream then
 * belongs to the calling thread.
 *
 * Threads: any; not while another one captures on the stream.
 *
 * Errors: REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_mark_stream(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Tells the engine that a stream is about to be destroyed. What it gave back becomes free for others
 * when its work has completed; blocks of it that are live can be freed later.
 *
 * Threads: any; not while another one captures on the stream.
 *
 * Errors: REGRAPH_ERROR_STREAM_IN_USE: the stream must live on. REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_retire_stream(const struct regraph_engine *engine,
                                    regraph_stream stream);

/**
 * Writes what has been recorded of a capture that is under way to a file, as a trace that
 * `regraph replay` runs. Call it before regraph_end_capture(). `origin` is the stream that the
 * capture began on, `path` a file name in UTF-8; a file that is there is replaced.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NO_JOURNAL, REGRAPH_ERROR_NO_TRACE,
 * REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_write_trace(const struct regraph_engine *engine,
                                  regraph_capture_id capture,
                                  regraph_stream origin,
                                  const char *path);

/**
 * Begins a capture on `stream` (cuStreamBeginCapture) that uses `pool`. `mode` is one of the
 * REGRAPH_CAPTURE constants, which are CUDA's. `capture` gets the capture's id.
 *
 * The library owns the capture and its graph: regraph_finish_stream_capture() ends the capture,
 * regraph_launch_graph() launches the graph and regraph_release_graph() destroys it.
 * regraph_begin_capture() is for a program that makes these CUDA calls itself.
 *
 * Threads: any; the capture then stays on the calling thread.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_INVALID_ARGUMENT,
 * REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER. The stream does not capture then.
 */
regraph_error regraph_begin_stream_capture(const struct regraph_engine *engine,
                                           struct regraph_pool pool,
                                           regraph_stream stream,
                                           int32_t mode,
                                           regraph_capture_id *capture);

/**
 * Throws a capture away that regraph_begin_stream_capture() began, and begins another one on the same
 * stream, with the same pool and mode, for the same work. From what the first capture asked for,
 * the library plans where the blocks of the second one lie, close to the least memory: for devices
 * without virtual memory management there is no other way to that. `capture` holds the first
 * capture's id and gets the second one's.
 *
 * Capture the work, free all blocks that the capture allocated, call this, and capture the work again.
 * The first capture's graph never runs. A block from the first capture that was not freed stays
 * allocated, and its memory is not shared. Where the second capture asks for anything else than the
 * first, its blocks lie as without a plan from there on: the report tells (layout_blocks,
 * layout_followed). Memory that the pool holds and does not use goes back to the driver meanwhile.
 *
 * Takes up to a second where the capture has many blocks.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE and REGRAPH_ERROR_NO_JOURNAL: the first capture goes on. Those
 * of regraph_begin_stream_capture(): the stream does not capture then.
 */
regraph_error regraph_repeat_stream_capture(const struct regraph_engine *engine,
                                            regraph_capture_id *capture);

/**
 * Ends a capture that regraph_begin_stream_capture() began: the checker judges it (the setting
 * "check"), cuStreamEndCapture(), cuGraphInstantiate() and cuGraphUpload(). `report` may be NULL, but
 * its graph id is what regraph_launch_graph() and regraph_release_graph() take.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; those of regraph_end_capture(); REGRAPH_ERROR_DRIVER, where a
 * stream was not joined again for instance. The capture is over then, and nothing of it is left but
 * the blocks that it allocated and did not free.
 */
regraph_error regraph_finish_stream_capture(const struct regraph_engine *engine,
                                            regraph_capture_id capture,
                                            struct regraph_capture_report *report);

/**
 * Launches a graph of regraph_finish_stream_capture() on a stream that does not capture, after every
 * earlier launch of a graph of the same pools, on any stream: graphs of one pool share memory, so they
 * never run at once. Costs one event record, and one wait where the stream is not that of the
 * pool's last launch.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of
 * regraph_end_capture(); REGRAPH_ERROR_CAPTURING; REGRAPH_ERROR_POOL_SUSPENDED;
 * REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_PER_THREAD_STREAM: nothing was launched then.
 * REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_launch_graph(const struct regraph_engine *engine,
                                   struct regraph_graph_id graph,
                                   regraph_stream stream);

/**
 * The same for an executable that the caller made of a graph of regraph_end_capture()
 * (cuGraphInstantiate). A launch in any other way (cuGraphLaunch) is not ordered among the graphs of
 * its pools: the caller then keeps them from running at once.
 *
 * Threads: any.
 *
 * Errors: as regraph_launch_graph(); REGRAPH_ERROR_INVALID_ARGUMENT for a graph that the library
 * instantiated.
 */
regraph_error regraph_launch_executable(const struct regraph_engine *engine,
                                        struct regraph_graph_id graph,
                                        regraph_executable executable,
                                        regraph_stream stream);

/**
 * The graph and the executable of regraph_finish_stream_capture(), for reading and for updates of
 * parameters between launches. They are destroyed by regraph_release_graph(). Either pointer may be
 * NULL.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of
 * regraph_end_capture().
 */
regraph_error regraph_graph_get_handles(const struct regraph_engine *engine,
                                        struct regraph_graph_id graph,
                                        regraph_graph *handle,
                                        regraph_executable *executable);

/**
 * The least memory that the blocks of a graph's capture need, in bytes, in any placement that adds no
 * edges to the graph. The first call takes some milliseconds, or about a second for 100,000 blocks.
 *
 * Until the graph is released the library keeps its capture's journal for this, some 50 to 100 bytes
 * of host memory for each node and block; regraph_graph_forget_journal() gives the journal up.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NO_JOURNAL where the capture kept no journal or it
 * was forgotten.
 */
regraph_error regraph_graph_minimum_bytes(const struct regraph_engine *engine,
                                          struct regraph_graph_id graph,
                                          uint64_t *bytes);

/**
 * Frees the journal of a graph's capture.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH.
 */
regraph_error regraph_graph_forget_journal(const struct regraph_engine *engine,
                                           struct regraph_graph_id graph);

/**
 * Releases a graph: its memory is free for others when the launches that the library made of it have
 * completed, which is seen at a later launch, capture or destruction of its pools. A graph of
 * regraph_finish_stream_capture() is destroyed then. The executables of a graph of
 * regraph_end_capture() are the caller's: none is launched any more, and launches that the
 * library did not make have completed before this call.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH.
 */
regraph_error regraph_release_graph(const struct regraph_engine *engine,
                                    struct regraph_graph_id graph);

/**
 * Says of every free range of a pool, in order of addresses, whether `stream` may take it now, and
 * if not why, and which marker it waits for. `explanation` gets a list to be destroyed with
 * regraph_explanation_destroy().
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_explain(const struct regraph_engine *engine,
                              struct regraph_pool pool,
                              regraph_stream stream,
                              struct regraph_explanation **explanation);

/**
 * How many ranges an explanation has; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_explanation_count(const struct regraph_explanation *explanation);

/**
 * One range of an explanation, counted from 0. Lives as long as the explanation; NULL beyond its
 * end, or for NULL.
 *
 * Threads: any.
 */
const struct regraph_free_range *regraph_explanation_get(const struct regraph_explanation *explanation,
                                                         size_t index);

/**
 * Destroys an explanation. Nothing for NULL.
 *
 * Threads: any, while no other call uses the explanation.
 */
void regraph_explanation_destroy(struct regraph_explanation *explanation);

/**
 * The figures of all pools.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_statistics(const struct regraph_engine *engine,
                                     struct regraph_statistics *statistics);

/**
 * The figures of a pool.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_get_statistics(const struct regraph_engine *engine,
                                          struct regraph_pool pool,
                                          struct regraph_statistics *statistics);

/**
 * Lets all peaks begin anew, at what is now.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_reset_peaks(const struct regraph_engine *engine);

/**
 * Lets all sums over time and all counts begin anew.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_reset_accumulated(const struct regraph_engine *engine);

/**
 * Sets the most that all pools together may hold, in bytes; REGRAPH_NO_LIMIT takes the limit away.
 * What is held already is not given back by this: see regraph_trim().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_set_memory_limit(const struct regraph_engine *engine, uint64_t bytes);

/**
 * The same as a share of the device's memory, from 0 to 1.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_ARGUMENT; REGRAPH_ERROR_DRIVER, where it does not tell the device's
 * size.
 */
regraph_error regraph_set_memory_fraction(const struct regraph_engine *engine, double fraction);

/**
 * The most that all pools together may hold, in bytes, or REGRAPH_NO_LIMIT.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_memory_limit(const struct regraph_engine *engine, uint64_t *bytes);

/**
 * Gives all memory back to the driver that is wholly free, without waiting for anything: what
 * running work may still use stays, and so does what graphs use. `emptied` may be NULL.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_empty_cache(const struct regraph_engine *engine,
                                  struct regraph_emptied *emptied);

/**
 * The same, until no more than `keep` bytes are held; what was unused longest goes first.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_trim(const struct regraph_engine *engine,
                           uint64_t keep,
                           struct regraph_emptied *emptied);

/**
 * Lists every block that has not been freed. `leaks` gets a list to be destroyed with
 * regraph_leak_list_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_leaks(const struct regraph_engine *engine,
                                struct regraph_leak_list **leaks);

/**
 * How many blocks a list has; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_leak_list_count(const struct regraph_leak_list *leaks);

/**
 * One block of a list, counted from 0. Lives as long as the list; NULL beyond its end, or for NULL.
 *
 * Threads: any.
 */
const struct regraph_leak *regraph_leak_list_get(const struct regraph_leak_list *leaks,
                                                 size_t index);

/**
 * Destroys a list. Nothing for NULL.
 *
 * Threads: any, while no other call uses the list.
 */
void regraph_leak_list_destroy(struct regraph_leak_list *leaks);

/**
 * Registers somebody who is told of every request of regraph_allocate() that fails for want of
 * memory. `user_data` is handed to it and may be NULL; what it points to lives as long as the
 * engine, since there is no way to take an observer back. It may be called by several threads at
 * once.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_observe_out_of_memory(const struct regraph_engine *engine,
                                            regraph_out_of_memory_callback callback,
                                            void *user_data);

/**
 * Writes everything that the engine holds, block by block, with what each freed block waits for, and
 * the history where one is kept, as JSON. `path` is a file name in UTF-8; a file that is there is
 * replaced.
 *
 * Threads: any. Nothing else goes on in the engine while the snapshot is taken.
 *
 * Errors: REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_write_snapshot_json(const struct regraph_engine *engine,
                                          const char *path);

/**
 * The same as a pickle, which pytorch.org/memory_viz opens.
 *
 * Threads: any. Nothing else goes on in the engine while the snapshot is taken.
 *
 * Errors: REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_write_snapshot_pickle(const struct regraph_engine *engine, const char *path);

/**
 * The same as JSON text, to be destroyed with regraph_string_destroy().
 *
 * Threads: any. Nothing else goes on in the engine while the snapshot is taken.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_snapshot_json(const struct regraph_engine *engine, char **json);

/**
 * Destroys a text that a call gave to be destroyed. Nothing for NULL.
 *
 * Threads: any.
 */
void regraph_string_destroy(char *string);

/**
 * Keeps the latest `entries` events from now on, for snapshots; 0 ends that. What was kept before is
 * forgotten.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_record_history(const struct regraph_engine *engine,
                                     size_t entries);

/**
 * Creates a stream of the simulated device (cuStreamCreate).
 *
 * Threads: any, as for every regraph_sim call.
 *
 * Errors of every regraph_sim call: REGRAPH_ERROR_NOT_SIMULATED for an engine on a CUDA device;
 * REGRAPH_ERROR_NULL; REGRAPH_ERROR_DRIVER for what the driver would refuse, with its code in
 * regraph_last_driver_code().
 */
regraph_error regraph_sim_create_stream(const struct regraph_engine *engine,
                                        regraph_stream *stream);

/**
 * Destroys a simulated stream that is not capturing (cuStreamDestroy). Retire it first.
 */
regraph_error regraph_sim_destroy_stream(const struct regraph_engine *engine,
                                         regraph_stream stream);

/**
 * Launches a kernel that does nothing on a simulated stream, capturing or not (cuLaunchKernelEx);
 * with `programmatic` it may start before the stream's last kernel has completed.
 */
regraph_error regraph_sim_launch(const struct regraph_engine *engine,
                                 regraph_stream stream,
                                 bool programmatic);

/**
 * Makes what comes on `stream` wait for what `on` holds now (cuEventRecord and cuStreamWaitEvent).
 * If `on` captures, `stream` joins the capture.
 */
regraph_error regraph_sim_wait(const struct regraph_engine *engine,
                               regraph_stream stream,
                               regraph_stream on);

/**
 * Begins a capture on a simulated stream (cuStreamBeginCapture, thread-local mode).
 */
regraph_error regraph_sim_begin_capture(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Says in which capture a simulated stream is, and what the graph under capture is
 * (cuStreamGetCaptureInfo): 0 and NULL where it does not capture. Either pointer may be NULL.
 */
regraph_error regraph_sim_capture_info(const struct regraph_engine *engine,
                                       regraph_stream stream,
                                       regraph_capture_id *capture,
                                       regraph_graph *graph);

/**
 * Ruins the capture that a simulated stream is in, as an invalid operation does.
 */
regraph_error regraph_sim_invalidate_capture(const struct regraph_engine *engine,
                                             regraph_stream stream);

/**
 * Ends the capture that began on a simulated stream (cuStreamEndCapture). Every stream that joined
 * it has been waited for, directly or not, by this one. `graph` is to be destroyed with
 * regraph_sim_destroy_graph().
 */
regraph_error regraph_sim_end_capture(const struct regraph_engine *engine,
                                      regraph_stream stream,
                                      regraph_graph *graph);

/**
 * Destroys a simulated graph (cuGraphDestroy).
 */
regraph_error regraph_sim_destroy_graph(const struct regraph_engine *engine, regraph_graph graph);

/**
 * Makes a simulated graph ready to launch (cuGraphInstantiate). `executable` is to be destroyed with
 * regraph_sim_destroy_executable().
 */
regraph_error regraph_sim_instantiate(const struct regraph_engine *engine,
                                      regraph_graph graph,
                                      regraph_executable *executable);

/**
 * Launches an executable graph on a simulated stream that does not capture (cuGraphLaunch), in no
 * order among the graphs of its pools: regraph_launch_executable() keeps that order.
 */
regraph_error regraph_sim_launch_graph(const struct regraph_engine *engine,
                                       regraph_executable executable,
                                       regraph_stream stream);

/**
 * Destroys a simulated executable graph (cuGraphExecDestroy).
 */
regraph_error regraph_sim_destroy_executable(const struct regraph_engine *engine,
                                             regraph_executable executable);

/**
 * Completes the work of a simulated stream, and what that waits for, and no other
 * (cuStreamSynchronize). Work does not complete by itself: there is no time.
 */
regraph_error regraph_sim_synchronize_stream(const struct regraph_engine *engine,
                                             regraph_stream stream);

/**
 * Completes all work of the simulated device (cuCtxSynchronize).
 */
regraph_error regraph_sim_synchronize(const struct regraph_engine *engine);

/**
 * How much of the simulated device's memory is in use, in bytes.
 */
regraph_error regraph_sim_used_bytes(const struct regraph_engine *engine, uint64_t *bytes);

/**
 * Makes a coming call of the engine's to the simulated driver fail, without effect and with the code
 * 800: the very next for 0, the one after it for 1, and so on. For tests of what a host does then.
 */
regraph_error regraph_sim_fail_driver_call(const struct regraph_engine *engine,
                                           uint64_t skip);

/**
 * Panics inside the library, as a bug of it would, and returns REGRAPH_ERROR_PANIC. For tests of
 * what a host does then; the engine is unharmed. The panic is written to standard error.
 */
regraph_error regraph_sim_panic(const struct regraph_engine *engine);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REGRAPH_H */
