/*
 * regraph: a CUDA memory allocator for programs that capture CUDA graphs on several streams.
 *
 * Link with -lregraph_c, or with libregraph_c.a; pkg-config and CMake know the library as
 * `regraph`. No CUDA toolkit is needed: libcuda is opened when the first engine on a GPU is
 * created. capi/examples/multi_stream.c is an example, regraph.hpp a layer of C++ classes.
 *
 * Objects. An engine is an allocator on one device. A pool is memory that graphs share. Streams
 * allocate and free blocks of a pool, inside captures and outside. A capture ends with a graph,
 * which has a claim on the memory of its pools until it is released. Pools, graphs, captures and
 * blocks have ids; a call that receives the id of another engine's object, or of one that is gone,
 * returns a REGRAPH_ERROR_UNKNOWN code and does nothing.
 *
 * Calls. A call that can fail returns a regraph_error. Results go through out-pointers, which are
 * written only if the call succeeds. No call unwinds or exits: a bug in the library is
 * REGRAPH_ERROR_PANIC.
 *
 * Pointers. A null pointer where none is allowed is REGRAPH_ERROR_NULL. Any other pointer points to
 * what the call's documentation says: an object that was created and not destroyed, room for a
 * result, or UTF-8 text that ends with a nul. The library keeps no pointer of the caller's except
 * user_data. It never dereferences CUDA's handles (streams, graphs); they must name live objects.
 *
 * Threads. "Any" means: any thread, and several at once. "Not while another thread captures into
 * the same graph" concerns calls on streams that capture, since they read the graph. "The one that
 * captures" is the thread that makes the capture's stream calls.
 * After fork() the child must make no call on an engine of its parent: CUDA does not work there, and a lock of the
 * library that another thread held stays locked. The parent goes on as before.
 *
 * Units. All sizes are bytes.
 *
 * Terms. A stream's terminals are the nodes that its next captured node will depend on. A block's
 * free markers are the nodes that must have completed before its memory can be used again.
 *
 * Stability. Structures keep their size and layout within a major version (a minor one before
 * 1.0.0): later versions give names to `unused` fields. Those that only the library makes may grow
 * at the end.
 *
 * This file is generated from the sources in capi/src: do not edit it. To generate it:
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
 * No limit, or an unknown number of bytes.
 */
#define REGRAPH_NO_LIMIT UINT64_MAX

/**
 * A message of something that failed.
 */
#define REGRAPH_LOG_ERROR 1

/**
 * A message of something that a program should know.
 */
#define REGRAPH_LOG_WARNING 2

/**
 * A message of something that happens seldom: an engine, a verdict on a capture, a plan, sleep, shortage of memory.
 */
#define REGRAPH_LOG_INFO 3

/**
 * A message of each growth, each give back, each capture, pool and loan.
 */
#define REGRAPH_LOG_DEBUG 4

/**
 * Each graph of the pool has an executable of its own.
 */
#define REGRAPH_SHARE_NONE 0

/**
 * Graphs share an executable whose nodes are the same, edges, attributes and kernels included.
 */
#define REGRAPH_SHARE_SAME_FUNCTIONS 1

/**
 * As REGRAPH_SHARE_SAME_FUNCTIONS, but a node may run another kernel in each of them.
 */
#define REGRAPH_SHARE_ANY_FUNCTIONS 2

/**
 * The first attempt, of a program that captures again after REGRAPH_ERROR_CAPTURE_AGAIN.
 */
#define REGRAPH_ATTEMPT_FIRST 0

/**
 * The second attempt, or the only one of a program that may be unable to capture again. The default.
 */
#define REGRAPH_ATTEMPT_AGAIN 1

/**
 * The third attempt, which is not refused for a programmatic launch.
 */
#define REGRAPH_ATTEMPT_LAST 2

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
 * No process has taken the loan.
 */
#define REGRAPH_LOAN_OFFERED 0

/**
 * A process has the loan.
 */
#define REGRAPH_LOAN_TAKEN 1

/**
 * The loan is back, or was called back before a process took it: no process has it or gets it.
 */
#define REGRAPH_LOAN_BACK 2

/**
 * What live blocks of a region hold is kept in page-locked memory of the host while it sleeps.
 */
#define REGRAPH_BACKUP_HOST 0

/**
 * What live blocks of a region hold is lost: they hold anything when the region wakes.
 */
#define REGRAPH_BACKUP_NONE 1

/**
 * What live blocks of a region hold stays on the device: the region does not sleep.
 */
#define REGRAPH_BACKUP_DEVICE 2

/**
 * What live blocks of a region hold is kept in a file (regraph_regions_set_file_backup() alone sets this).
 */
#define REGRAPH_BACKUP_FILE 3

/**
 * What live blocks of a region hold is kept in a shared file (regraph_regions_set_shared_backup() alone sets this).
 */
#define REGRAPH_BACKUP_SHARED 4

/**
 * The result of a call. Every call that can fail returns one; regraph_last_error_message() says more. Unless its
 * documentation says otherwise, a call that fails has changed nothing, and has written nothing through its pointers.
 *
 * The numbers are stable. Later versions may add codes: treat an unknown one as a failure.
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
     * A pointer is null that must not be.
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
     * Settings, in a text or an environment variable, are not valid. The message says where, and what is allowed.
     */
    REGRAPH_ERROR_SETTINGS = 4,
    /**
     * The call panicked inside the library, which is a bug in the library. The call may have done a part of its work;
     * an engine whose state may be wrong then refuses all calls (REGRAPH_ERROR_POISONED).
     */
    REGRAPH_ERROR_PANIC = 5,
    /**
     * The library was built without this feature.
     */
    REGRAPH_ERROR_NOT_SUPPORTED = 6,
    /**
     * A regraph_sim call on an engine that is not simulated.
     */
    REGRAPH_ERROR_NOT_SIMULATED = 7,
    /**
     * A file could not be made, written or read.
     */
    REGRAPH_ERROR_IO = 8,
    /**
     * The engine keeps no journal: set "check:True" or regraph_config_set_journal().
     */
    REGRAPH_ERROR_NO_JOURNAL = 9,
    /**
     * The capture's journal exceeds the limits of the trace format.
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
     * The request is for zero bytes.
     */
    REGRAPH_ERROR_ZERO_BYTES = 30,
    /**
     * No memory is proven free for the request and the device, or a limit, allows no more. A
     * capture under way can go on.
     */
    REGRAPH_ERROR_OUT_OF_MEMORY = 31,
    /**
     * The block is not live: it was freed before, or belongs to another engine.
     */
    REGRAPH_ERROR_UNKNOWN_BLOCK = 32,
    /**
     * The pool is not one of this engine: it was destroyed, or belongs to another engine.
     */
    REGRAPH_ERROR_UNKNOWN_POOL = 33,
    /**
     * The capture is not under way in this engine.
     */
    REGRAPH_ERROR_UNKNOWN_CAPTURE = 34,
    /**
     * The capture was ended or abandoned in the engine, and its stream still captures: end the stream's capture first.
     */
    REGRAPH_ERROR_CAPTURE_ENDED = 35,
    /**
     * The graph is not one of this engine: it was released, or belongs to another engine.
     */
    REGRAPH_ERROR_UNKNOWN_GRAPH = 36,
    /**
     * The stream does not capture, or is not in the capture that the call names.
     */
    REGRAPH_ERROR_NOT_CAPTURING = 37,
    /**
     * An invalid operation has invalidated the capture. The engine has rolled it back.
     */
    REGRAPH_ERROR_CAPTURE_INVALIDATED = 38,
    /**
     * The pool cannot be destroyed yet: blocks, captures, graphs or work use it.
     */
    REGRAPH_ERROR_POOL_IN_USE = 39,
    /**
     * The pool cannot be suspended or compacted now: captures or work use it.
     */
    REGRAPH_ERROR_POOL_BUSY = 40,
    /**
     * The pool's memory would not come back at the same addresses.
     */
    REGRAPH_ERROR_CANNOT_SUSPEND = 41,
    /**
     * The pool is suspended, or short of a part of its memory: resume it first.
     */
    REGRAPH_ERROR_POOL_SUSPENDED = 42,
    /**
     * There is not enough memory to resume the pool. It stays suspended.
     */
    REGRAPH_ERROR_RESUME_OUT_OF_MEMORY = 43,
    /**
     * A stream was set back before work that a reuse of memory relied on. The capture is rolled
     * back; its graph must not be launched.
     */
    REGRAPH_ERROR_SET_BACK = 44,
    /**
     * The per-thread default stream is a different stream in every thread: create a stream.
     */
    REGRAPH_ERROR_PER_THREAD_STREAM = 45,
    /**
     * The stream cannot be retired yet: it captures, or was recorded for a live block.
     */
    REGRAPH_ERROR_STREAM_IN_USE = 46,
    /**
     * A thread panicked inside the engine, whose state may be wrong: it refuses all calls.
     */
    REGRAPH_ERROR_POISONED = 47,
    /**
     * The checker refuses the capture. It is rolled back; its graph must not be launched.
     */
    REGRAPH_ERROR_REFUSED = 48,
    /**
     * The capture uses a block later than was recorded, and regraph_config_set_refuse_late_uses() is set. It is rolled
     * back; its graph must not be launched.
     */
    REGRAPH_ERROR_LATE_USE = 49,
    /**
     * The capture cannot have a plan: the device cannot map memory at its end.
     */
    REGRAPH_ERROR_CANNOT_PLAN = 50,
    /**
     * At its end the capture needs more memory than there is. It is rolled back; its graph must not be launched.
     */
    REGRAPH_ERROR_PLAN_OUT_OF_MEMORY = 51,
    /**
     * The capture was ended without its graph, so its blocks are not backed by memory. The graph must not be launched.
     */
    REGRAPH_ERROR_UNPLANNED = 52,
    /**
     * The stream is capturing, and the call needs one that is not.
     */
    REGRAPH_ERROR_CAPTURING = 53,
    /**
     * No event could be recorded after an earlier launch in the pool, so no launch can be ordered
     * after that one, now or later: create another pool and capture there. Graphs of this one that are
     * released from now on keep their memory.
     */
    REGRAPH_ERROR_ORDER_LOST = 54,
    /**
     * The caller ended the graph's capture with regraph_end_capture(), so its executables are the
     * caller's: see regraph_launch_executable().
     */
    REGRAPH_ERROR_NOT_INSTANTIATED = 55,
    /**
     * Live blocks of the pool belong to no graph: free them, or see regraph_pool_suspend_discarding().
     */
    REGRAPH_ERROR_POOL_HAS_BLOCKS = 56,
    /**
     * As REGRAPH_ERROR_REFUSED, but only because a kernel was launched programmatically: capture the
     * same work again (see regraph_set_attempt()).
     */
    REGRAPH_ERROR_CAPTURE_AGAIN = 57,
    /**
     * The checker refuses to have the pool compacted: a flaw of the engine. All graphs and blocks have
     * the memory that they had.
     */
    REGRAPH_ERROR_COMPACTION_REFUSED = 58,
    /**
     * The graph was not launched: blocks live in memory that its pool has lent, and the launch would
     * overwrite them. Free them first (see regraph_pool_borrow()).
     */
    REGRAPH_ERROR_BLOCKS_LENT = 59,
    /**
     * The graph was not launched: a stream has used memory that its pool has lent, and the engine cannot
     * record an event on it now, because it captures or belongs to another thread.
     */
    REGRAPH_ERROR_LENT_WORK = 60,
    /**
     * The pool's region is asleep, and wakes by regraph_regions_wake() alone.
     */
    REGRAPH_ERROR_POOL_ASLEEP = 61,
    /**
     * No pool has this tag, and nothing was said of it.
     */
    REGRAPH_ERROR_UNKNOWN_REGION = 62,
    /**
     * A stream of the device captures, so the device cannot be waited for: end the capture first.
     */
    REGRAPH_ERROR_DEVICE_CAPTURES = 63,
    /**
     * A graph of the pool may be running: see regraph_regions_sleep().
     */
    REGRAPH_ERROR_POOL_RUNS = 64,
    /**
     * The host has no page-locked memory left for what a region holds: see regraph_regions_set_backup().
     */
    REGRAPH_ERROR_HOST_OUT_OF_MEMORY = 65,
    /**
     * The graph was not launched: its executable does not fit into the pool's budget for executables, beside
     * what is pinned (see regraph_pool_keep_executables()).
     */
    REGRAPH_ERROR_NO_EXECUTABLE = 66,
    /**
     * The engine was destroyed.
     */
    REGRAPH_ERROR_DESTROYED = 67,
    /**
     * The pool has nothing of this size to lend to another process now: see regraph_pool_lend().
     */
    REGRAPH_ERROR_NOTHING_LENT = 68,
    /**
     * The memory cannot be shared with other processes: it was not made for that (the setting
     * "exportable:True"), or the system refuses.
     */
    REGRAPH_ERROR_NOT_SHARED = 69,
    /**
     * The loan of another process cannot be had: the handle names none, it was taken or called back before, or
     * its process cannot be reached.
     */
    REGRAPH_ERROR_NOT_TAKEN = 70,
    /**
     * There is no such loan: it was given back, or belongs to another engine.
     */
    REGRAPH_ERROR_UNKNOWN_LOAN = 71,
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
 * Why a stream cannot take a free range. Later versions may add reasons: treat an unknown one as a reason, too.
 */
enum regraph_refusal
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The stream can take the range.
     */
    REGRAPH_REFUSAL_NONE = 0,
    /**
     * The node `marker` must have completed first, and no path of edges that prove this leads from
     * it to the stream's terminals. `stream` is the stream of the block that lay there.
     */
    REGRAPH_REFUSAL_MARKER = 1,
    /**
     * The setting "reuse" allows only its own stream to take it: `stream`.
     */
    REGRAPH_REFUSAL_OWN_STREAM_ONLY = 2,
    /**
     * `stream`, which is not in the block's capture, used the block.
     */
    REGRAPH_REFUSAL_OUTSIDE_STREAM = 3,
    /**
     * `stream` was set back while it used the block, or continued after an edge that proves nothing.
     */
    REGRAPH_REFUSAL_UNTRUSTED = 4,
    /**
     * `capture` began later in the same pool and is under way.
     */
    REGRAPH_REFUSAL_NESTED_CAPTURE = 5,
    /**
     * The setting "reuse" holds it until the capture's end.
     */
    REGRAPH_REFUSAL_POLICY = 6,
    /**
     * `capture` was under way at the same time as the block's capture, and still is.
     */
    REGRAPH_REFUSAL_CAPTURE = 7,
    /**
     * Work of `stream` outside captures may still use it.
     */
    REGRAPH_REFUSAL_OUTSIDE_WORK = 8,
    /**
     * `stream` freed it outside captures: that stream can take it at once, other streams when the
     * work of `stream` has completed.
     */
    REGRAPH_REFUSAL_ORDERED = 9,
    /**
     * The range belongs to another capture that is under way.
     */
    REGRAPH_REFUSAL_OTHER_CAPTURE = 10,
    /**
     * A graph of the pool uses the range, and the stream is not capturing.
     */
    REGRAPH_REFUSAL_USED_BY_GRAPH = 11,
    /**
     * The range's pool is suspended: no memory lies behind its addresses.
     */
    REGRAPH_REFUSAL_SUSPENDED = 12,
    /**
     * The node `marker` must have completed first. It precedes the stream's next work, but that may be launched
     * programmatically and start before the node has completed. `stream` is the stream of the block that lay there.
     */
    REGRAPH_REFUSAL_EARLY_LAUNCH = 13,
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
 * The configuration of engines. Opaque, with a call for each option, so that later versions can
 * add options. Any number of engines can be created with one; an engine copies it.
 *
 * Threads: any, but one at a time for each config.
 */
typedef struct regraph_config regraph_config;

/**
 * The CUDA devices at one time, in the order of their ordinals.
 */
typedef struct regraph_device_list regraph_device_list;

/**
 * An allocator on one device.
 *
 * All calls on it may come from several threads at once, except regraph_engine_destroy(). Calls
 * that concern streams of a capture read its graph and must not run while another thread captures
 * into the same graph: CUDA's graph objects are not thread-safe. A stream belongs to the thread
 * that named it last (in regraph_allocate(), regraph_begin_capture() or regraph_mark_stream()): a
 * thread names a stream that another thread has used before it captures on it. Where other threads
 * use the engine meanwhile, it says so before its first capture (regraph_may_capture()).
 *
 * A stream that any call has named must live until regraph_retire_stream() has succeeded, or until the engine is
 * destroyed.
 */
typedef struct regraph_engine regraph_engine;

/**
 * Which of a pool's free ranges one stream can take, and why it cannot take the others.
 */
typedef struct regraph_explanation regraph_explanation;

/**
 * The live blocks at one time, in order of addresses.
 */
typedef struct regraph_leak_list regraph_leak_list;

/**
 * The pools at one time, in the order in which they were created.
 */
typedef struct regraph_pool_list regraph_pool_list;

/**
 * The regions at one time, in the order of their tags.
 */
typedef struct regraph_region_list regraph_region_list;

/**
 * A CUDA device. Later versions may add fields at the end.
 */
typedef struct regraph_device {
    /**
     * Its name, which lives as long as the list.
     */
    const char *name;
    /**
     * Its memory, in bytes.
     */
    uint64_t total_bytes;
    /**
     * What regraph_engine_create_cuda() makes an engine on it by.
     */
    uint32_t ordinal;
} regraph_device;

/**
 * Called for every message of the library, one at a time, on the thread that the message comes from.
 * `level` is one of the REGRAPH_LOG constants; later versions may add some. `message` lives as long as the
 * call and may have several lines.
 *
 * The callback must not call the library. It must return: no longjmp, no C++ exception (which ends the program).
 */
typedef void (*regraph_log_callback)(int32_t level, const char *message, void *user_data);

/**
 * The id of a pool. No id is given twice in a process: calls reject the id of a pool that was
 * destroyed or that belongs to another engine.
 */
typedef struct regraph_pool {
    /**
     * For the library only. All zero is no valid id.
     */
    uint64_t words[2];
} regraph_pool;

/**
 * What the executables of a pool's graphs come to. All bytes are the driver's memory and none of the pool's.
 */
typedef struct regraph_executable_figures {
    /**
     * Graphs that have not been released.
     */
    uint64_t graphs;
    /**
     * Nodes of them.
     */
    uint64_t graph_nodes;
    /**
     * What their executables would take if each had its own, as foreseen; 0 where
     * regraph_pool_keep_executables() was never called.
     */
    uint64_t graph_bytes;
    /**
     * Executables that there are.
     */
    uint64_t executables;
    /**
     * Nodes of them.
     */
    uint64_t nodes;
    /**
     * What they take, as foreseen; 0 as for graph_bytes.
     */
    uint64_t bytes;
    /**
     * By how much the device's free memory shrank when they were made.
     */
    uint64_t measured;
    /**
     * What counts against the budget.
     */
    uint64_t counted;
    /**
     * Executables that were made.
     */
    uint64_t made;
    /**
     * Updates of executables.
     */
    uint64_t updates;
    /**
     * Executables that were destroyed while their graphs lived.
     */
    uint64_t evicted;
    /**
     * Updates that the driver refused.
     */
    uint64_t refused;
    /**
     * Zero. Later versions may give these names.
     */
    uint64_t unused[4];
} regraph_executable_figures;

/**
 * A stream: the same type as CUstream and cudaStream_t. NULL is the legacy default stream, also in a program that is
 * built for per-thread default streams, in which 0 is the calling thread's own: give these functions 2 for that, which
 * they refuse, as regraph.hpp does.
 */
typedef struct CUstream_st *regraph_stream;

/**
 * The id of a live block. No id is given twice in a process.
 */
typedef struct regraph_block_id {
    /**
     * For the library only. All zero is no valid id.
     */
    uint64_t words[3];
} regraph_block_id;

/**
 * A live block.
 */
typedef struct regraph_block {
    /**
     * Its id, for later calls.
     */
    struct regraph_block_id id;
    /**
     * Its device address, a multiple of 512.
     */
    uint64_t address;
    /**
     * The size that was requested, in bytes.
     */
    uint64_t bytes;
} regraph_block;

/**
 * The driver's id of a capture (cuStreamGetCaptureInfo()). Unique in a process.
 */
typedef uint64_t regraph_capture_id;

/**
 * Bounds of a plan for the memory that is mapped at a capture's end. All zero means no bounds.
 */
typedef struct regraph_plan_options {
    /**
     * The most mappings; zero means as many as the least memory needs.
     */
    uint64_t max_mappings;
    /**
     * The most bytes in a piece of memory; zero means any. With pieces of the device's granularity
     * the graphs of a pool together need no more memory than the largest of them.
     */
    uint64_t max_piece_bytes;
    /**
     * The most time for mapping, in percent of the capture's own time; zero means any.
     */
    uint64_t max_share_percent;
    /**
     * How many graphs with plans the pool is to have at one time, this one too; zero means any number.
     * Memory is cut into pieces for later graphs, which takes mappings: not that of the last.
     */
    uint64_t pool_graphs;
    /**
     * Zero. Later versions may give these names.
     */
    uint64_t unused[4];
} regraph_plan_options;

/**
 * A graph: the same type as CUgraph and cudaGraph_t.
 */
typedef struct CUgraph_st *regraph_graph;

/**
 * The id of a graph's claim on the memory of its pools. No id is given twice in a process.
 */
typedef struct regraph_graph_id {
    /**
     * For the library only. All zero is no valid id.
     */
    uint64_t words[2];
} regraph_graph_id;

/**
 * The results of a capture.
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
     * How often the engine asked the driver for a node's dependencies during the capture.
     */
    uint64_t dependency_queries;
    /**
     * Nodes that use a block later than was recorded, as far as their parameters show it; at most
     * 100. Zero unless regraph_config_set_find_late_uses() is on and the capture keeps a journal.
     */
    uint64_t late_uses;
    /**
     * Whether the checker verified the capture.
     */
    bool verified;
    /**
     * The memory that was mapped at the capture's end, in bytes; zero without a plan (regraph_plan_capture()).
     */
    uint64_t planned_bytes;
    /**
     * The part of planned_bytes that is new: the rest is shared with other graphs of the pool.
     */
    uint64_t planned_new_bytes;
    /**
     * The least memory that these blocks need by themselves, in bytes: whole units of the device's granularity.
     */
    uint64_t planned_minimum_bytes;
    /**
     * How many mappings that memory has: a piece may be mapped at several addresses.
     */
    uint64_t mappings;
    /**
     * Blocks that regraph_repeat_stream_capture() planned an address for; zero without that call.
     */
    uint64_t layout_blocks;
    /**
     * How many of them lie at that address.
     */
    uint64_t layout_followed;
    /**
     * How much longer the capture took for its plan, in percent of its time until then, to plan and to
     * map; zero without a plan.
     */
    uint64_t plan_share_percent;
    /**
     * With how many mappings that would be 15 percent, if it is more: a bound for max_mappings in
     * regraph_plan_options, at which the same capture may take more
     * memory. Else zero, and where planning alone takes longer.
     */
    uint64_t mappings_within_share;
} regraph_capture_report;

/**
 * What graphs that share one pool will need, in bytes.
 */
typedef struct regraph_needs {
    /**
     * What the pool will hold.
     */
    uint64_t pool_bytes;
    /**
     * What the driver took beside it for executables, one for each graph. Captures in this process use it,
     * and do not take it again.
     */
    uint64_t executable_bytes;
    /**
     * What the pool may come to at most, where captures ask for the same memory.
     */
    uint64_t most_pool_bytes;
    /**
     * What executables may come to at most.
     */
    uint64_t most_executable_bytes;
} regraph_needs;

/**
 * An executable graph: the same type as CUgraphExec and cudaGraphExec_t.
 */
typedef struct CUgraphExec_st *regraph_executable;

/**
 * The id of a loan between processes. No id is given twice in a process.
 */
typedef struct regraph_loan_id {
    /**
     * For the library only. All zero is no valid id.
     */
    uint64_t words[2];
} regraph_loan_id;

/**
 * A loan that another process may take.
 */
typedef struct regraph_loan {
    /**
     * Its id in the process that lends.
     */
    struct regraph_loan_id id;
    /**
     * The size that was requested, in bytes.
     */
    uint64_t bytes;
    /**
     * What regraph_loan_take() takes the loan by: bytes that the caller sends to the other process by any means, and
     * destroys with regraph_loan_handle_destroy().
     */
    uint8_t *handle;
    /**
     * How many bytes the handle has.
     */
    size_t handle_bytes;
} regraph_loan;

/**
 * A loan of another process that this one has taken.
 */
typedef struct regraph_taken_loan {
    /**
     * Its id in the process that has taken it.
     */
    struct regraph_loan_id id;
    /**
     * Its device address.
     */
    uint64_t address;
    /**
     * Its size, in bytes.
     */
    uint64_t bytes;
} regraph_taken_loan;

/**
 * How a region went to sleep or woke: all 0 where it did not yet, or without memory.
 */
typedef struct regraph_region_moved {
    /**
     * Device memory that went or came, in bytes.
     */
    uint64_t bytes;
    /**
     * What was copied to the host, or to a file, or from there, in bytes: what live blocks held, and outputs of graphs.
     */
    uint64_t copied_bytes;
    /**
     * What went or came without its contents, in bytes: free memory, temporary memory of graphs, and all of a region
     * whose contents are not kept.
     */
    uint64_t dropped_bytes;
    /**
     * What the call took for all its regions, a wait for the device and for other calls of the regions included, in
     * nanoseconds.
     */
    uint64_t nanoseconds;
} regraph_region_moved;

/**
 * A region's figures, all in bytes. Later versions may add fields at the end.
 */
typedef struct regraph_region {
    /**
     * Its tag. Lives as long as the list.
     */
    const char *tag;
    /**
     * Device memory that it holds.
     */
    uint64_t awake_bytes;
    /**
     * Device memory that it had and gave back: it asks for this again when it wakes.
     */
    uint64_t asleep_bytes;
    /**
     * What is kept of it in memory of the host.
     */
    uint64_t host_bytes;
    /**
     * How many pools it has.
     */
    size_t pools;
    /**
     * One of the REGRAPH_BACKUP constants.
     */
    int32_t backup;
    /**
     * Its latest sleep.
     */
    struct regraph_region_moved slept;
    /**
     * Its latest wake.
     */
    struct regraph_region_moved woke;
    /**
     * What is kept of it in files.
     */
    uint64_t file_bytes;
    /**
     * The folder of its files, with the backup REGRAPH_BACKUP_FILE, or the file, with REGRAPH_BACKUP_SHARED; NULL
     * otherwise. Lives as long as the list.
     */
    const char *folder;
} regraph_region;

/**
 * A node of a graph: the same type as CUgraphNode and cudaGraphNode_t. Unique within a capture.
 */
typedef struct CUgraphNode_st *regraph_node;

/**
 * A free range, and whether one stream can take it. Later versions may add fields at the end.
 */
typedef struct regraph_free_range {
    /**
     * Its device address.
     */
    uint64_t address;
    /**
     * Its size, in bytes.
     */
    uint64_t bytes;
    /**
     * The number, in messages and journals, of the last block that lay there; valid with `has_block`.
     */
    uint64_t block;
    /**
     * The node that must have completed first; NULL if the refusal names none.
     */
    regraph_node marker;
    /**
     * The stream that the refusal names; valid with `has_stream`, since NULL is a stream.
     */
    regraph_stream stream;
    /**
     * The capture that the refusal names, or 0.
     */
    regraph_capture_id capture;
    /**
     * The refusal in words; empty if there is none. Lives as long as the explanation.
     */
    const char *text;
    /**
     * Why the stream cannot take it.
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
 * One statistic over time.
 */
typedef struct regraph_figure {
    /**
     * The current value.
     */
    uint64_t current;
    /**
     * The highest value since regraph_reset_peaks().
     */
    uint64_t peak;
    /**
     * The sum of all increases since regraph_reset_accumulated().
     */
    uint64_t allocated;
    /**
     * The sum of all decreases since then.
     */
    uint64_t freed;
} regraph_figure;

/**
 * Statistics of some memory, with the meanings that PyTorch gives them.
 */
typedef struct regraph_figures {
    /**
     * Blocks that have not been freed.
     */
    struct regraph_figure allocation;
    /**
     * Their bytes, each block rounded up to a multiple of 512.
     */
    struct regraph_figure allocated_bytes;
    /**
     * Their bytes as requested.
     */
    struct regraph_figure requested_bytes;
    /**
     * Live blocks, and freed blocks that no stream can take yet.
     */
    struct regraph_figure active;
    /**
     * Their bytes.
     */
    struct regraph_figure active_bytes;
    /**
     * Free ranges in segments of which another part is, or may be, in use.
     */
    struct regraph_figure inactive_split;
    /**
     * Their bytes.
     */
    struct regraph_figure inactive_split_bytes;
    /**
     * Mappings and allocations that are held from the driver.
     */
    struct regraph_figure segment;
    /**
     * Their bytes.
     */
    struct regraph_figure reserved_bytes;
    /**
     * Bytes of suspended pools that were given back to the driver and that the pools need again when they are resumed.
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
     * Requests that were tried again after memory had been given back to the driver.
     */
    uint64_t num_alloc_retries;
    /**
     * Requests that failed for lack of memory.
     */
    uint64_t num_ooms;
    /**
     * How often a call waited for the work of streams.
     */
    uint64_t num_sync_all_streams;
    /**
     * Mappings and allocations that were obtained from the driver.
     */
    uint64_t num_device_alloc;
    /**
     * Mappings and allocations that were given back.
     */
    uint64_t num_device_free;
    /**
     * Captures that the checker has accepted.
     */
    uint64_t num_captures_verified;
    /**
     * Captures that have ended and that it did not judge.
     */
    uint64_t num_captures_unjudged;
    /**
     * Captures that were refused at their end.
     */
    uint64_t num_captures_refused;
    /**
     * Refused captures that the caller was asked to make again (REGRAPH_ERROR_CAPTURE_AGAIN).
     */
    uint64_t num_captures_again;
    /**
     * How long the checker has judged, in nanoseconds.
     */
    uint64_t check_ns;
    /**
     * Zero. Later versions may give these names.
     */
    uint64_t unused[6];
} regraph_counts;

/**
 * The statistics of an engine or of a pool. But for memory mapped ahead, had at a capture's end, or fixed, reserved_bytes +
 * suspended_bytes = active_bytes (allocated, or freed and not to be had yet) + inactive_split_bytes.
 */
typedef struct regraph_statistics {
    /**
     * All blocks.
     */
    struct regraph_figures all;
    /**
     * Blocks of up to 1 MiB. Captures may place a block of any size in either part.
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
 * A pool in short. Later versions may add fields at the end.
 */
typedef struct regraph_pool_info {
    /**
     * The pool.
     */
    struct regraph_pool pool;
    /**
     * Its name, or NULL where it has none. Lives as long as the list.
     */
    const char *name;
    /**
     * The tag of its region, or NULL where it belongs to none. Lives as long as the list.
     */
    const char *tag;
    /**
     * Held from the driver, in bytes.
     */
    uint64_t reserved_bytes;
    /**
     * In blocks that have not been freed, in bytes.
     */
    uint64_t allocated_bytes;
    /**
     * Blocks that have not been freed.
     */
    uint64_t blocks;
} regraph_pool_info;

/**
 * The result of regraph_empty_cache() and regraph_trim(), in bytes.
 */
typedef struct regraph_emptied {
    /**
     * Given back to the driver.
     */
    uint64_t released;
    /**
     * Free, but work that has not completed may still use it: it can be given back later.
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
     * Its device address.
     */
    uint64_t address;
    /**
     * The size that was requested, in bytes.
     */
    uint64_t bytes;
    /**
     * Its stream.
     */
    regraph_stream stream;
    /**
     * All of this in words, with the host's stack frames at the allocation, innermost first, if
     * stacks are recorded (the setting "stacks:True"). Lives as long as the list.
     */
    const char *text;
    /**
     * Its pool.
     */
    struct regraph_pool pool;
} regraph_leak;

/**
 * Why a request failed. All in bytes. Later versions may add fields at the end.
 */
typedef struct regraph_out_of_memory {
    /**
     * The size that was requested.
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
     * Free and proven for the stream, but fragmented.
     */
    uint64_t takeable;
    /**
     * Free, but not yet usable by this stream: work or captures are to complete first.
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
     * Given back by suspended pools, which need it again when they are resumed.
     */
    uint64_t engine_suspended;
    /**
     * Held by pools that belong to graphs, or to captures under way.
     */
    uint64_t in_graphs;
    /**
     * Free on the device; REGRAPH_NO_LIMIT if the driver does not know.
     */
    uint64_t device_free;
    /**
     * The device's memory; REGRAPH_NO_LIMIT if the driver does not know.
     */
    uint64_t device_total;
    /**
     * The stream of the request.
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
     * Whether the stream captures, so that the call could not wait for work.
     */
    bool capturing;
    /**
     * Whether segments can grow (the setting "expandable_segments").
     */
    bool growable;
    /**
     * Free, but used by graphs of the pool as long as they live.
     */
    uint64_t kept_by_graphs;
} regraph_out_of_memory;

/**
 * Called for every request that fails for lack of memory, on the thread of the request, before the
 * request returns and without any lock of the engine. The report lives as long as the call.
 *
 * The callback may call the engine, but must not destroy it, nor begin, end or abandon a capture
 * of the request's stream. It must return: no longjmp, no C++ exception (which ends the program).
 */
typedef void (*regraph_out_of_memory_callback)(const struct regraph_out_of_memory *report,
                                               void *user_data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The library's version as one number, to compare with REGRAPH_VERSION. Before 1.0.0 a library fits a header if major
 * and minor versions are the same; from then on if the major version is the same and the library is not older.
 *
 * Threads: any.
 */
uint32_t regraph_version(void);

/**
 * The library's version as text, such as "0.1.0". The text is never freed.
 *
 * Threads: any.
 */
const char *regraph_version_string(void);

/**
 * The name of a code, such as "REGRAPH_ERROR_OUT_OF_MEMORY"; "unknown" for any other number. The text is never freed.
 *
 * Threads: any.
 */
const char *regraph_error_name(int32_t error);

/**
 * The message of the latest call that failed on this thread: for people, not for parsing; empty if none has
 * failed. Valid until this thread calls this function again: calls that fail meanwhile leave it alone.
 *
 * Threads: any; each has its own message.
 */
const char *regraph_last_error_message(void);

/**
 * The driver's code (CUresult) of the latest call that failed on this thread; 0 if that call did
 * not fail in the driver.
 *
 * Threads: any; each has its own code.
 */
uint32_t regraph_last_driver_code(void);

/**
 * Creates a config with every option at its default. To be destroyed with regraph_config_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_create(struct regraph_config **config);

/**
 * Destroys a config. Does nothing for NULL.
 */
void regraph_config_destroy(struct regraph_config *config);

/**
 * Replaces all settings by those of a text such as "programmatic:lag,memory_limit_mb:4096": keys
 * and values as in the environment variable REGRAPH_ALLOC_CONF, whose format is that of
 * PYTORCH_ALLOC_CONF. Settings that the text does not name get their defaults.
 *
 * Errors: REGRAPH_ERROR_SETTINGS, whose message names the byte and what is allowed there;
 * REGRAPH_ERROR_INVALID_TEXT; REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_settings(struct regraph_config *config, const char *settings);

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
 * Whether the end of a capture searches the parameters of the graph's nodes for uses of blocks
 * later than was recorded, counts them in its report and tells them in a message. Needs a
 * journal. Default: yes in debug builds of the library, no in others.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_find_late_uses(struct regraph_config *config, bool find);

/**
 * Whether a capture with such a use is refused (REGRAPH_ERROR_LATE_USE). Needs regraph_config_set_find_late_uses().
 * Default: no, since a parameter may look like an address and be none.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_refuse_late_uses(struct regraph_config *config,
                                                  bool refuse);

/**
 * Whether a message names blocks that were never freed when the engine is destroyed. Default: yes.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_config_set_report_leaks(struct regraph_config *config, bool report);

/**
 * Lists the CUDA devices that the process can use (CUDA_VISIBLE_DEVICES); none where the machine has
 * none. `devices` gets a list to be destroyed with regraph_device_list_destroy(). Makes no context.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER;
 * REGRAPH_ERROR_NOT_SUPPORTED where the library was built without CUDA; REGRAPH_ERROR_NULL.
 */
regraph_error regraph_get_devices(struct regraph_device_list **devices);

/**
 * The number of devices of a list; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_device_list_count(const struct regraph_device_list *devices);

/**
 * One device of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
 *
 * Threads: any.
 */
const struct regraph_device *regraph_device_list_get(const struct regraph_device_list *devices,
                                                     size_t index);

/**
 * Destroys a list. Does nothing for NULL.
 *
 * Threads: any, while no other call uses the list.
 */
void regraph_device_list_destroy(struct regraph_device_list *devices);

/**
 * Sends all messages of the library, of all engines of the process, to a callback: blocks that were never freed, uses
 * later than recorded, and the like. It gets `user_data`, which may be NULL. NULL for `callback` sends them to
 * standard error again, where they go until the first call. When this returns, no callback of an earlier call runs or
 * will be called. Failures of calls are no messages: see regraph_last_error_message().
 *
 * Threads: any, but not from a callback.
 *
 * Errors: none but REGRAPH_ERROR_PANIC.
 */
regraph_error regraph_set_log_callback(regraph_log_callback callback,
                                       void *user_data);

/**
 * Sets up to which level messages are told, of all engines of the process: one of the REGRAPH_LOG constants, or 0 for
 * none. Until the first call it is as the environment variable REGRAPH_LOG says (off, error, warn, info or debug), or
 * REGRAPH_LOG_WARNING. What is not told costs next to nothing.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_ARGUMENT.
 */
regraph_error regraph_set_log_level(int32_t level);

/**
 * Creates an engine on a CUDA device and retains that device's primary context. libcuda is opened here, not when the
 * library is loaded. `config` is copied; NULL means the default. To be destroyed with regraph_engine_destroy().
 *
 * Threads: any. No call changes the calling thread's current context, but that a thread without one
 * has the device's primary context after this call.
 *
 * Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER, for a device that does not
 * exist among others; REGRAPH_ERROR_NOT_SUPPORTED where the library was built without CUDA; REGRAPH_ERROR_NULL.
 */
regraph_error regraph_engine_create_cuda(uint32_t ordinal,
                                         const struct regraph_config *config,
                                         struct regraph_engine **engine);

/**
 * Creates an engine on a simulated device with `total_bytes` of memory, 0 for 141 GiB and 128 TiB at most, and a
 * granularity of 2 MiB. Needs no GPU and no driver; the calls whose names begin with regraph_sim stand for the CUDA
 * driver's. `config` is copied; NULL means the default. To be destroyed with regraph_engine_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_engine_create_sim(uint64_t total_bytes,
                                        const struct regraph_config *config,
                                        struct regraph_engine **engine);

/**
 * Destroys an engine, after a wait for the graphs that the library instantiated, which are
 * destroyed. The memory of pools that a live block, a capture, another graph or running work uses
 * is not given back before the process ends. A message names blocks that were never freed
 * (regraph_set_log_callback()), unless the config says otherwise. Does nothing for NULL. Later calls on the engine
 * fail with REGRAPH_ERROR_DESTROYED, for which two words of it stay; this call does nothing then.
 *
 * Threads: any, while no other call on the engine runs.
 */
void regraph_engine_destroy(struct regraph_engine *engine);

/**
 * Creates an empty pool that may hold `max_bytes`, or REGRAPH_NO_LIMIT. Memory comes with the first allocation. Graphs
 * of one pool share memory and never run at once: give graphs that are to run at the same time pools of their own.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_pool_create(const struct regraph_engine *engine,
                                  uint64_t max_bytes,
                                  struct regraph_pool *pool);

/**
 * Creates a pool with a name, which stands in messages instead of the pool's number. `name` is
 * UTF-8 and is copied; NULL means none.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_pool_create_named(const struct regraph_engine *engine,
                                        const char *name,
                                        uint64_t max_bytes,
                                        struct regraph_pool *pool);

/**
 * Gives a pool a name in place of the one that it has. `name` is UTF-8 and is copied; NULL takes the name
 * away, so that the pool's number stands in messages.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_pool_set_name(const struct regraph_engine *engine,
                                    struct regraph_pool pool,
                                    const char *name);

/**
 * Creates a pool that belongs to the region `tag`, whose memory sleeps and wakes as one
 * (regraph_regions_sleep()). `tag` and `name` are UTF-8 and are copied; NULL means none.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_pool_create_in_region(const struct regraph_engine *engine,
                                            const char *tag,
                                            const char *name,
                                            uint64_t max_bytes,
                                            struct regraph_pool *pool);

/**
 * Gives all memory of a pool back to the driver and destroys the pool.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POOL_IN_USE while a block of it is live, a capture into it is under way, a
 * graph of it exists or work may still use a freed block; REGRAPH_ERROR_UNKNOWN_POOL;
 * REGRAPH_ERROR_DRIVER: the pool is destroyed, but the driver may not have taken all its memory.
 */
regraph_error regraph_pool_destroy(const struct regraph_engine *engine, struct regraph_pool pool);

/**
 * Gives a pool up: it is destroyed now, or after its last block is freed, its last graph is
 * released and their work has completed; its blocks and graphs can be used as before. The id is not for use from now
 * on: most calls reject it, and a block that regraph_allocate() still gives for it keeps the pool, as a capture does
 * that is under way. Waits for launches of graphs that were released while they ran.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_release(const struct regraph_engine *engine,
                                   struct regraph_pool pool);

/**
 * From now on the library makes an executable when its graph is launched first, or prepared
 * (regraph_graph_prepare()), graphs share executables as `sharing` says (one of the REGRAPH_SHARE constants), and
 * all of them together take at most `budget` bytes, or REGRAPH_NO_LIMIT: where that is short, the executable goes
 * that was asked for longest ago and is not pinned (regraph_graph_pin()). One that graphs share is updated
 * (cuGraphExecUpdate()) when another of them is launched. Launches that were made before run as they were made.
 *
 * Without this call each graph has an executable of its own from the end of its capture on. The library counts
 * what it foresees for an executable, and more where they were measured to take more. Where one has to go that may
 * run, the launch that needs the room waits for the pool's launches so far. An executable that took more than the budget
 * by itself, beyond 10 MiB, is destroyed again, and its launch refused (REGRAPH_ERROR_NO_EXECUTABLE); the driver keeps
 * the memory and uses it for the next ones.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_INVALID_ARGUMENT; REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_pool_keep_executables(const struct regraph_engine *engine,
                                            struct regraph_pool pool,
                                            uint64_t budget,
                                            int32_t sharing);

/**
 * Destroys the executables of a pool's graphs that are not pinned, after a wait for the pool's launches; `bytes`
 * gets what was foreseen for them, and may be NULL. Each comes back when its graph is launched: while this pool
 * sleeps, others can have the memory, which the driver does not give back to the device.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_pool_release_executables(const struct regraph_engine *engine,
                                               struct regraph_pool pool,
                                               uint64_t *bytes);

/**
 * What the executables of a pool's graphs come to.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_get_executables(const struct regraph_engine *engine,
                                           struct regraph_pool pool,
                                           struct regraph_executable_figures *figures);

/**
 * Gives all physical memory of a pool back to the driver and keeps its addresses, blocks and graphs, until
 * regraph_pool_resume(). All contents are lost. Waits for the launches that regraph_launch_graph() and
 * regraph_launch_executable() made of the pool's graphs; such launches are refused until the pool is resumed. `bytes`
 * gets the bytes that were given back; it may be NULL.
 *
 * Other work on the pool's memory must have completed, and none may be submitted before the pool is resumed: launches
 * of its graphs by other calls, and work on its live blocks. The engine sees neither.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POOL_HAS_BLOCKS, if live blocks of the pool belong to no graph; REGRAPH_ERROR_POOL_BUSY;
 * REGRAPH_ERROR_POOL_ASLEEP for the pool of a region that sleeps; REGRAPH_ERROR_CANNOT_SUSPEND;
 * REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_UNKNOWN_POOL. After REGRAPH_ERROR_DRIVER a part of the memory may have been
 * given back, and another call continues with the rest.
 */
regraph_error regraph_pool_suspend(const struct regraph_engine *engine,
                                   struct regraph_pool pool,
                                   uint64_t *bytes);

/**
 * Like regraph_pool_suspend(), but accepts live blocks that belong to no graph, those of
 * regraph_pool_borrow() included. They stay live at their addresses, and their contents are lost too.
 *
 * Threads: any.
 *
 * Errors: those of regraph_pool_suspend() except REGRAPH_ERROR_POOL_HAS_BLOCKS.
 */
regraph_error regraph_pool_suspend_discarding(const struct regraph_engine *engine,
                                              struct regraph_pool pool,
                                              uint64_t *bytes);

/**
 * Maps memory again at the addresses of a suspended pool. Its contents are undefined. `bytes` gets
 * the bytes that were mapped, 0 for a pool that is not suspended; it may be NULL. Where memory is
 * short the call waits for streams, as regraph_allocate() does outside captures.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_RESUME_OUT_OF_MEMORY, REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_DRIVER, and
 * REGRAPH_ERROR_POOL_ASLEEP for the pool of a region that sleeps. The pool stays suspended, or short of a part (see
 * regraph_pool_is_short()).
 */
regraph_error regraph_pool_resume(const struct regraph_engine *engine,
                                  struct regraph_pool pool,
                                  uint64_t *bytes);

/**
 * Has the graphs of a pool whose captures had a plan share as much memory as they can by now, and gives the rest back.
 * Addresses and what live blocks hold stay; all other contents are lost, those of outputs that were freed included.
 * Waits for the launches that regraph_launch_graph() and regraph_launch_executable() made of the pool's graphs.
 * `bytes` gets the bytes that were given back; it may be NULL. See regraph_pool_get_excess_bytes().
 *
 * No launch of the pool's graphs by other calls may be running, or be submitted before the call
 * returns: the engine does not see those. Work on live blocks may continue. Graphs whose captures were
 * under way beside others keep their memory as it is.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POOL_BUSY while a capture or work on freed blocks uses the pool; REGRAPH_ERROR_POOL_SUSPENDED;
 * REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_COMPACTION_REFUSED. After REGRAPH_ERROR_DRIVER
 * the pool may be short of a part of its memory (see regraph_pool_is_short()).
 */
regraph_error regraph_pool_compact(const struct regraph_engine *engine,
                                   struct regraph_pool pool,
                                   uint64_t *bytes);

/**
 * How many bytes regraph_pool_compact() would give back: what the pool holds beyond what its graphs
 * and live blocks need now, because some of its graphs and outputs are gone. Freed blocks that work may
 * still use count as live. Costs what finding the new pieces does.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED.
 */
regraph_error regraph_pool_get_excess_bytes(const struct regraph_engine *engine,
                                            struct regraph_pool pool,
                                            uint64_t *bytes);

/**
 * Allocates a block of at least `bytes` for `stream`, which does not capture, in memory that the pool's
 * graphs do not keep between launches: all that they use but outputs, inputs and live blocks. Where there is no
 * such place, or none is lent because a capture uses the pool or has a plan, the block is as
 * regraph_allocate() gives it. Later work on `stream` waits for the launches so far that
 * regraph_launch_graph() and regraph_launch_executable() made of the pool's graphs.
 *
 * What a capture both allocated and freed is lent: each launch is taken to write it anew, so what only the run of the
 * capture wrote there, by work that was not captured, is lost.
 *
 * Until such a block is freed these calls refuse to launch the pool's graphs. The next launch then waits for
 * all work that has used it, on the streams that were recorded for it too. Launches by other calls are the
 * caller's to order: none may run or be submitted while such a block lives.
 *
 * Threads: the one that uses `stream`; launches may come from any. The stream's work on a block that
 * another thread frees is ordered by the next call with this stream on the borrowing thread; a launch
 * before that fails with REGRAPH_ERROR_LENT_WORK.
 *
 * Errors: those of regraph_allocate(); REGRAPH_ERROR_CAPTURING; REGRAPH_ERROR_ORDER_LOST.
 */
regraph_error regraph_pool_borrow(const struct regraph_engine *engine,
                                  struct regraph_pool pool,
                                  uint64_t bytes,
                                  regraph_stream stream,
                                  struct regraph_block *block);

/**
 * The bytes of live blocks in memory that the pool's graphs have lent: `bytes` gets them. A part of the
 * allocated bytes. See regraph_pool_borrow().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_get_lent_bytes(const struct regraph_engine *engine,
                                          struct regraph_pool pool,
                                          uint64_t *bytes);

/**
 * Whether a pool is short of a part of its memory, because the driver refused to give back what
 * regraph_pool_compact() or a capture's end had exchanged. Until regraph_pool_resume() it is refused what
 * a suspended pool is, but the contents of its live blocks are kept.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_is_short(const struct regraph_engine *engine,
                                    struct regraph_pool pool,
                                    bool *is_short);

/**
 * Whether a pool is suspended, or short of a part of its memory (see regraph_pool_is_short()).
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_is_suspended(const struct regraph_engine *engine,
                                        struct regraph_pool pool,
                                        bool *suspended);

/**
 * Makes later work on `stream` wait for every launch that regraph_launch_graph() and
 * regraph_launch_executable() have made of the pool's graphs: before a graph's inputs are written
 * again, for instance. Costs nothing on the stream of the last launch.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_CAPTURING,
 * REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_pool_follow(const struct regraph_engine *engine,
                                  struct regraph_pool pool,
                                  regraph_stream stream);

/**
 * Waits until every launch that regraph_launch_graph() and regraph_launch_executable() made of the
 * pool's graphs has completed, and destroys the graphs that were released while they ran.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_pool_synchronize(const struct regraph_engine *engine,
                                       struct regraph_pool pool);

/**
 * Allocates a block of at least `bytes` for `stream`.
 *
 * While `stream` captures, the block is new memory, or memory whose earlier users are all proven
 * to complete before the stream's next node starts. Outside captures the block is memory that no
 * graph of the pool uses, and whose earlier users have completed or come before on `stream`
 * itself. The call waits for work only outside captures and when memory is short; calls of other
 * threads go on meanwhile. Host callbacks on a stream must not call the engine, which calls CUDA.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_ZERO_BYTES; REGRAPH_ERROR_OUT_OF_MEMORY, after which the capture can go on;
 * REGRAPH_ERROR_CAPTURE_INVALIDATED; REGRAPH_ERROR_CAPTURE_ENDED; REGRAPH_ERROR_UNKNOWN_POOL;
 * REGRAPH_ERROR_POOL_SUSPENDED; REGRAPH_ERROR_PER_THREAD_STREAM; REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_allocate(const struct regraph_engine *engine,
                               struct regraph_pool pool,
                               uint64_t bytes,
                               regraph_stream stream,
                               struct regraph_block *block);

/**
 * Allocates a block whose memory is its own: while `stream` captures, the memory is mapped at once, and it is not
 * shared or moved while the capture's graph lives, even after the block is freed. For memory that is registered with a
 * communication library, exported, or used by a kernel that keeps running. Outside captures it is the same as
 * regraph_allocate(): keep the block for as long as its memory must not be shared.
 *
 * Threads and errors: as regraph_allocate().
 */
regraph_error regraph_allocate_fixed(const struct regraph_engine *engine,
                                     struct regraph_pool pool,
                                     uint64_t bytes,
                                     regraph_stream stream,
                                     struct regraph_block *block);

/**
 * Records that `stream` uses the block at some time before its free. The use must be ordered after the allocation, by
 * an event for instance. The stream that a block was allocated for needs no record.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_record_stream(const struct regraph_engine *engine,
                                    struct regraph_block_id block,
                                    regraph_stream stream);

/**
 * Marks the stream's current position as its last use of the block: the block's free marker on the
 * stream is then this position instead of the free. A later regraph_record_stream() cancels this.
 * For a block from outside captures it is the same as regraph_record_stream().
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_record_use(const struct regraph_engine *engine,
                                 struct regraph_block_id block,
                                 regraph_stream stream);

/**
 * Frees a block. In a capture its free markers are the current terminals of its own stream and of
 * every stream that was recorded for it, or the terminals at the last use if that was recorded
 * (regraph_record_use()). Outside captures its own stream can get the memory at once, unless other
 * streams used the block. Does not wait: work that was submitted before may still use the block.
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, for a block that was freed before for instance.
 */
regraph_error regraph_free(const struct regraph_engine *engine, struct regraph_block_id block);

/**
 * Frees a block after what `stream` holds, which need not be its own stream:
 * regraph_record_stream() and regraph_free() in one call.
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
 * after cuStreamBeginCapture(). `capture` gets the capture's id.
 *
 * The first allocation on a stream that captures does the same. If the graph has conditional nodes, the engine must
 * know its capture in each pool that the body of a conditional node is captured into, by this call or by an allocation,
 * before the body is captured, and the capture must end after that of the body. A capture that uses blocks of a pool
 * without allocating from it should name that pool here too.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_NOT_CAPTURING, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_CAPTURE_ENDED,
 * REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER.
 * REGRAPH_ERROR_INVALID_ARGUMENT for the pool of an estimate (regraph_estimate_begin()).
 */
regraph_error regraph_begin_capture(const struct regraph_engine *engine,
                                    struct regraph_pool pool,
                                    regraph_stream stream,
                                    regraph_capture_id *capture);

/**
 * Has the memory of a capture mapped at the capture's end, as little as the graph can run on. With
 * `options` NULL memory is mapped as blocks are allocated, even if the settings ask for a plan.
 * Call it before the capture's first allocation.
 *
 * With a plan, blocks are not backed by memory until regraph_end_capture() or regraph_finish_stream_capture() has
 * returned: until then the graph is not launched, work outside the capture does not touch these blocks, and they are
 * not registered or exported. Blocks for such uses come from regraph_allocate_fixed(). What work that is not captured
 * writes to them until then is not in the memory that they get.
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
 * Sets which attempt at its work a capture is: one of the REGRAPH_ATTEMPT constants. Call it before the capture's
 * first allocation. A program that captures the same work again after REGRAPH_ERROR_CAPTURE_AGAIN, and numbers its
 * attempts from REGRAPH_ATTEMPT_FIRST on, needs the least memory. Without the checker ("check:False"), and with
 * another setting than "programmatic:auto", the call has no effect.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_INVALID_ARGUMENT.
 */
regraph_error regraph_set_attempt(const struct regraph_engine *engine,
                                  regraph_capture_id capture,
                                  int32_t attempt);

/**
 * Ends a capture. `graph` is the graph under capture (cuStreamGetCaptureInfo()), just before cuStreamEndCapture(), or
 * the graph which that returned. The first is better: the engine can then look at the streams once more. All uses of
 * the capture's blocks must be recorded before. `report` may be NULL, but regraph_launch_executable() and
 * regraph_release_graph() take the report's graph id.
 *
 * With the setting "check" the checker verifies the capture against the finished graph. After
 * success, memory of blocks that the capture freed can be used by later captures into the same
 * pools; blocks that it did not free stay allocated, as outputs of the graph. Graphs of one pool
 * must never run at the same time: regraph_launch_executable() orders their launches.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_REFUSED, REGRAPH_ERROR_CAPTURE_AGAIN, REGRAPH_ERROR_SET_BACK, REGRAPH_ERROR_LATE_USE, and with
 * a plan REGRAPH_ERROR_PLAN_OUT_OF_MEMORY: the graph must not be launched, and the capture is rolled back as by
 * regraph_abandon_capture(). REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NULL.
 * REGRAPH_ERROR_INVALID_ARGUMENT for a capture of regraph_begin_stream_capture(), and for one that uses the pool of an
 * estimate (regraph_estimate_begin()): the capture stays under way.
 */
regraph_error regraph_end_capture(const struct regraph_engine *engine,
                                  regraph_capture_id capture,
                                  regraph_graph graph,
                                  struct regraph_capture_report *report);

/**
 * The first of two steps that end a capture: as regraph_end_capture(), but without the checker's verdict, which
 * regraph_capture_verdict() waits for. The checker judges a copy of the graph on a thread of the library's; meanwhile
 * the caller may end the capture with cuStreamEndCapture(), instantiate the graph, and destroy it. The graph must not
 * be launched before regraph_capture_verdict() has accepted it. Later captures into the same pools may use the
 * capture's memory at once.
 *
 * The checker judges before this returns: captures of few nodes, captures whose memory is mapped at
 * their end, captures that are searched for late uses (regraph_config_set_find_late_uses()) and, unless
 * the setting "programmatic" is "lag" or "trust", captures with a programmatic launch.
 *
 * Threads: the one that captures.
 *
 * Errors: those of regraph_end_capture(). There is no verdict to ask for then.
 */
regraph_error regraph_close_capture(const struct regraph_engine *engine,
                                    regraph_capture_id capture,
                                    regraph_graph graph);

/**
 * The second of two steps that end a capture: waits for the checker's verdict on a capture that
 * regraph_close_capture() has closed. May be called once for each capture. `report` may be NULL, as
 * for regraph_end_capture().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_REFUSED: the graph must not be launched, and the library has released its
 * memory as regraph_release_graph() does.
 * REGRAPH_ERROR_UNKNOWN_CAPTURE for a capture that is not closed, or whose verdict was given before.
 */
regraph_error regraph_capture_verdict(const struct regraph_engine *engine,
                                      regraph_capture_id capture,
                                      struct regraph_capture_report *report);

/**
 * Rolls a capture back whose graph will never run; also one that regraph_close_capture() has closed and whose verdict
 * was not asked for. Blocks that the capture allocated and did not free stay live until they are freed, and must not
 * be used. A capture of regraph_begin_stream_capture() ends on its stream too.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE.
 */
regraph_error regraph_abandon_capture(const struct regraph_engine *engine,
                                      regraph_capture_id capture);

/**
 * The least memory that the blocks of a capture under way need so far, in bytes, in any placement
 * that adds no edges to the graph: regraph_graph_minimum_bytes() when the capture has ended. Takes
 * some milliseconds, or about a second for 100,000 blocks.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_NO_JOURNAL where captures keep no journal.
 */
regraph_error regraph_capture_minimum_bytes(const struct regraph_engine *engine,
                                            regraph_capture_id capture,
                                            uint64_t *bytes);

/**
 * Reads the terminals of a stream. A host that sets a capturing stream back with
 * cuStreamUpdateCaptureDependencies() calls this before and after.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_observe_stream(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Records the position of a stream outside captures: blocks that were freed on it so far become
 * free for other streams when the stream has completed its work up to here. Worth a call before
 * the stream captures. The stream then belongs to the calling thread.
 *
 * Threads: any; not while another one captures on the stream.
 *
 * Errors: REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_mark_stream(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Tells the engine that the calling thread is about to begin a capture on a stream. From then on no
 * other thread's call records an event on the stream, which the driver could crash of. A program
 * whose threads share the engine calls it before the first capture of each thread, and of each
 * other engine that has blocks which the stream has used.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_may_capture(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Tells the engine that a stream is about to be destroyed. Blocks that were freed on it become
 * free for other streams when its work has completed; its live blocks can still be freed later.
 *
 * Threads: any; not while another one captures on the stream.
 *
 * Errors: REGRAPH_ERROR_STREAM_IN_USE: the stream must live on. REGRAPH_ERROR_PER_THREAD_STREAM.
 */
regraph_error regraph_retire_stream(const struct regraph_engine *engine, regraph_stream stream);

/**
 * Writes the journal of a capture under way to a file, as a trace that `regraph replay` runs. Call
 * it before regraph_end_capture(). `origin` is the stream that the capture began on, `path` a file
 * name in UTF-8; a file that is there is replaced.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NO_JOURNAL, REGRAPH_ERROR_NO_TRACE,
 * REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT. REGRAPH_ERROR_INVALID_ARGUMENT where `origin` is not in the
 * capture, or not the stream of regraph_begin_stream_capture().
 */
regraph_error regraph_write_trace(const struct regraph_engine *engine,
                                  regraph_capture_id capture,
                                  regraph_stream origin,
                                  const char *path);

/**
 * Notes from now on what is asked for outside captures, in all pools and by all threads, until
 * regraph_learned(): for one run of the work that is to be captured, from where its capture will begin
 * to where it will end. What was noted since an earlier call is forgotten.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_learn(const struct regraph_engine *engine);

/**
 * Ends what regraph_learn() began. From now on each capture whose first request is for as many bytes as
 * the first one noted lays its blocks out as is best for those noted, in the first pool that it allocates
 * from, and so takes close to the least memory that it can run on; what it asks for otherwise, it gets as
 * usual. Captures with a plan (regraph_plan_capture()) do without this. The latest 16 runs are kept.
 * `blocks` becomes the number of blocks noted, and may be NULL; nothing is kept where there were none.
 *
 * What streams know of each other outside captures is guessed from the blocks that
 * regraph_record_stream() names more than one of them for. A wrong guess costs memory and no safety. A run
 * is followed, and a message says where it is not, if each of its streams but the first uses a block of
 * another one in one of the first two turns that the host gives it, or has one turn alone, and, with several
 * streams, if its layout takes less memory than blocks that are placed as they come.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_learned(const struct regraph_engine *engine,
                              uint64_t *blocks);

/**
 * Forgets all that was learned. Captures that follow it already go on.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_forget_learned(const struct regraph_engine *engine);

/**
 * Begins to estimate what graphs in one pool will need. `pool` becomes a pool for captures that come to
 * nothing: each is begun with regraph_begin_stream_capture(), submits what its graph is to do, with blocks
 * of this pool, and ends with regraph_show_stream_capture(). They have addresses for their blocks, and no
 * more memory behind them than 170 MiB. regraph_estimate_end() tells what was found.
 *
 * The captures that follow are to ask for memory in the same order. What a library allocates outside the
 * pool, as cuBLAS its workspace for a stream, is not counted: the first run outside captures makes that.
 *
 * Threads: any. One thread at a time uses an estimate and its pool.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_estimate_begin(const struct regraph_engine *engine,
                                     struct regraph_pool *pool);

/**
 * Ends a capture into the pool of an estimate, in place of regraph_finish_stream_capture(): notes what was
 * asked for in it, has the driver make its graph executable, to see what that takes, and rolls the capture
 * back. Blocks that it allocated and did not free count as kept as long as its graph lives; they stay live
 * until they are freed, which is best done now, and must not be used.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE for a capture that regraph_begin_stream_capture() did not begin in
 * the pool of an estimate; REGRAPH_ERROR_NO_TRACE for one of more than 2^32 nodes; REGRAPH_ERROR_DRIVER. The
 * capture is over then, too, unless it is unknown.
 */
regraph_error regraph_show_stream_capture(const struct regraph_engine *engine,
                                          regraph_capture_id capture);

/**
 * Ends an estimate: `needs` becomes what the graphs of the captures that were shown will need, made in the same order
 * with the engine's settings. Takes as long as a simulated device needs for the captures. `needs` may be NULL.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL for a pool that regraph_estimate_begin() did not give;
 * REGRAPH_ERROR_INVALID_ARGUMENT while a capture into the pool is under way: show it first, or abandon it.
 * REGRAPH_ERROR_OUT_OF_MEMORY where no device like this one could serve the captures; REGRAPH_ERROR_DRIVER. Unless a
 * capture is under way the pool is gone then, too.
 */
regraph_error regraph_estimate_end(const struct regraph_engine *engine,
                                   struct regraph_pool pool,
                                   struct regraph_needs *needs);

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
 * REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER; for the pool of an estimate REGRAPH_ERROR_CANNOT_PLAN. The
 * stream does not capture then.
 */
regraph_error regraph_begin_stream_capture(const struct regraph_engine *engine,
                                           struct regraph_pool pool,
                                           regraph_stream stream,
                                           int32_t mode,
                                           regraph_capture_id *capture);

/**
 * Allocates a block of at least `bytes` from the pool of a capture of regraph_begin_stream_capture(), as
 * regraph_allocate() does, for a stream of the capture. For a stream outside the capture regraph_allocate() returns a
 * block that no graph uses; this call refuses it.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_NOT_CAPTURING for a stream that is not in
 * the capture: make it wait for an event of the capture first; those of regraph_allocate().
 */
regraph_error regraph_capture_allocate(const struct regraph_engine *engine,
                                       regraph_capture_id capture,
                                       uint64_t bytes,
                                       regraph_stream stream,
                                       struct regraph_block *block);

/**
 * Allocates a block of at least `bytes` in a capture of regraph_begin_stream_capture(), for a stream of
 * that capture, with memory that is its own, as regraph_allocate_fixed() does: it is mapped at once, and
 * not shared or moved while the capture's graph lives, even after the block is freed.
 *
 * Threads and errors: as regraph_capture_allocate().
 */
regraph_error regraph_capture_allocate_fixed(const struct regraph_engine *engine,
                                             regraph_capture_id capture,
                                             uint64_t bytes,
                                             regraph_stream stream,
                                             struct regraph_block *block);

/**
 * Abandons a capture of regraph_begin_stream_capture() and begins a second one on the same stream, with the same pool
 * and mode, for the same work. From the requests of the first capture the library plans the addresses of the second
 * capture's blocks, close to the least memory. Devices without virtual memory management have no other way to that.
 * `capture` holds the first capture's id and gets the second one's.
 *
 * Capture the work, free all blocks that the capture allocated, make this call, and capture the work again. A block of
 * the first capture that was not freed stays allocated, and its memory is not shared. From the first request on that
 * differs from the first capture's, the plan is not followed: the report has the numbers (layout_blocks,
 * layout_followed). Memory that the pool holds and does not use goes back to the driver.
 *
 * Takes up to some seconds where the capture has many blocks, more with plan_search.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NO_JOURNAL, REGRAPH_ERROR_INVALID_ARGUMENT for a
 * capture into the pool of an estimate (regraph_estimate_begin()) and, where the second capture could only
 * repeat what is wrong, REGRAPH_ERROR_REFUSED: the first capture stays under way.
 * Those of regraph_begin_stream_capture(): the stream does not capture then.
 */
regraph_error regraph_repeat_stream_capture(const struct regraph_engine *engine,
                                            regraph_capture_id *capture);

/**
 * Ends a capture of regraph_begin_stream_capture(): the checker verifies it (the setting "check"),
 * and the library calls cuStreamEndCapture(), cuGraphInstantiate() and cuGraphUpload(), the latter two
 * not before the first launch where the pool keeps executables (regraph_pool_keep_executables()). `report`
 * may be NULL, but regraph_launch_graph() and regraph_release_graph() take the report's graph id.
 *
 * Threads: the one that captures.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; those of regraph_end_capture(); REGRAPH_ERROR_DRIVER, if
 * a stream was not joined again for instance. The capture has ended then, without a graph; blocks
 * that it allocated and did not free stay live. REGRAPH_ERROR_INVALID_ARGUMENT for a capture into the pool of
 * an estimate, which regraph_show_stream_capture() ends: the capture stays under way.
 */
regraph_error regraph_finish_stream_capture(const struct regraph_engine *engine,
                                            regraph_capture_id capture,
                                            struct regraph_capture_report *report);

/**
 * Launches a graph of regraph_finish_stream_capture() on a stream that does not capture. The launch waits for every
 * earlier launch of a graph of the same pools, on any stream: graphs of one pool share memory and must not run at the
 * same time. Costs one event record, and one wait if the stream is not that of the pool's last launch.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of regraph_end_capture();
 * REGRAPH_ERROR_CAPTURING; REGRAPH_ERROR_POOL_SUSPENDED; REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_PER_THREAD_STREAM;
 * REGRAPH_ERROR_BLOCKS_LENT and REGRAPH_ERROR_LENT_WORK (see regraph_pool_borrow()), REGRAPH_ERROR_NO_EXECUTABLE (see
 * regraph_pool_keep_executables()): nothing was launched then. REGRAPH_ERROR_DRIVER: the launch failed, or no event
 * could be recorded after it.
 */
regraph_error regraph_launch_graph(const struct regraph_engine *engine,
                                   struct regraph_graph_id graph,
                                   regraph_stream stream);

/**
 * Launches an executable that the caller instantiated (cuGraphInstantiate()) from a graph of regraph_end_capture(), on
 * a stream that does not capture. Like regraph_launch_graph(), the launch waits for every earlier launch of a graph of
 * the same pools, on any stream. The library does not see other launches (cuGraphLaunch()): the caller must keep those
 * from running at the same time as other graphs of the same pools.
 *
 * Threads: any.
 *
 * Errors: as regraph_launch_graph(); REGRAPH_ERROR_NULL; REGRAPH_ERROR_INVALID_ARGUMENT for a graph that the
 * library instantiated.
 */
regraph_error regraph_launch_executable(const struct regraph_engine *engine,
                                        struct regraph_graph_id graph,
                                        regraph_executable executable,
                                        regraph_stream stream);

/**
 * The graph and the executable of regraph_finish_stream_capture(), for reading and for updates of
 * parameters between launches. They are destroyed by regraph_release_graph(). Either pointer may
 * be NULL. `executable` gets NULL where the pool keeps executables (regraph_pool_keep_executables()) or has
 * released them (regraph_pool_release_executables()): it may hold another graph's parameters then, or go. One that
 * was got before must not be used any more then.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of regraph_end_capture().
 */
regraph_error regraph_graph_get_handles(const struct regraph_engine *engine,
                                        struct regraph_graph_id graph,
                                        regraph_graph *handle,
                                        regraph_executable *executable);

/**
 * Has the library launch a graph of regraph_end_capture() that has no executable yet: from now on
 * regraph_launch_graph() launches it, and regraph_release_graph() destroys `handle`, the graph that
 * cuStreamEndCapture() gave. The library instantiates it now and puts it on the device by `stream`, or as
 * regraph_pool_keep_executables() says.
 *
 * Threads: any, while no other call uses the graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH, REGRAPH_ERROR_NULL; REGRAPH_ERROR_INVALID_ARGUMENT for a graph that the library
 * instantiated, or that another thread uses. After REGRAPH_ERROR_DRIVER `graph` is released, and `handle` is
 * the caller's still and must not be launched.
 */
regraph_error regraph_graph_take(const struct regraph_engine *engine,
                                 struct regraph_graph_id graph,
                                 regraph_graph handle,
                                 regraph_stream stream);

/**
 * Does what the next regraph_launch_graph() of a graph would have to do first: instantiates it, or updates the
 * executable that it shares with others (cuGraphExecUpdate()). `stream` is one that does not capture. See
 * regraph_pool_keep_executables().
 *
 * Threads: any. Launches of the pool by other threads wait meanwhile.
 *
 * Errors: as regraph_launch_graph().
 */
regraph_error regraph_graph_prepare(const struct regraph_engine *engine,
                                    struct regraph_graph_id graph,
                                    regraph_stream stream);

/**
 * Says whether a graph's executable stays where the pool's budget for executables is short. At first it does
 * not. One that graphs share stays if one of those that were launched by it is pinned.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of regraph_end_capture().
 */
regraph_error regraph_graph_pin(const struct regraph_engine *engine,
                                struct regraph_graph_id graph,
                                bool pinned);

/**
 * The device memory that the driver is foreseen to take for an executable of a graph, in bytes; 0 where it
 * cannot tell.
 *
 * Threads: any.
 *
 * Errors: as regraph_graph_pin(); REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_graph_foreseen_bytes(const struct regraph_engine *engine,
                                           struct regraph_graph_id graph,
                                           uint64_t *bytes);

/**
 * The least memory that the blocks of a graph's capture need, in bytes, in any placement that adds no edges to the
 * graph. The first call takes some milliseconds, or about a second for 100,000 blocks.
 *
 * Until the graph is released the library keeps its capture's journal for this, some 50 to 100 bytes of host memory
 * for each node and block; regraph_graph_forget_journal() gives the journal up.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NO_JOURNAL where the capture kept no journal or it was forgotten.
 */
regraph_error regraph_graph_minimum_bytes(const struct regraph_engine *engine,
                                          struct regraph_graph_id graph,
                                          uint64_t *bytes);

/**
 * Frees the journal of a graph's capture, which regraph_graph_minimum_bytes() needs.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH.
 */
regraph_error regraph_graph_forget_journal(const struct regraph_engine *engine,
                                           struct regraph_graph_id graph);

/**
 * Releases a graph. Does not wait: if launches by the library are running, the graph keeps its memory until a later
 * launch, capture, synchronization or destruction of its pools finds that they have completed. A graph of
 * regraph_finish_stream_capture() is destroyed then. The executables of a graph of regraph_end_capture() belong to the
 * caller: launches that the library did not make must have completed before this call, and none may follow.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_GRAPH.
 */
regraph_error regraph_release_graph(const struct regraph_engine *engine,
                                    struct regraph_graph_id graph);

/**
 * Lends `bytes` to another process on the device, as regraph_pool_borrow() does to a stream of this one: memory that the
 * pool's graphs do not keep between launches. `loan` gets the loan, with a handle that the caller destroys. `stream`
 * does not capture; the lent block is that stream's here. Waits until the device has done all work. The engine needs the
 * setting "exportable:True", and the system Linux; the first loan opens a Unix socket without a file name, which a
 * thread of the library serves.
 *
 * Until the loan is back regraph_launch_graph() and regraph_launch_executable() refuse the pool's graphs with
 * REGRAPH_ERROR_BLOCKS_LENT. The loan is back when the other process has given it back or has ended, and the next of these
 * calls finds out by itself; regraph_loan_recall() asks for it. Whole pieces of memory are mapped by the other process,
 * which is trusted to leave alone what lies beside the loan, and to give it back before it ends where its work may
 * outlive it: under MPS, or where processes that it has forked keep the driver's files open.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NOTHING_LENT, REGRAPH_ERROR_NOT_SHARED, REGRAPH_ERROR_DEVICE_CAPTURES,
 * REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_ZERO_BYTES, REGRAPH_ERROR_CAPTURING,
 * REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER. Nothing is lent then.
 */
regraph_error regraph_pool_lend(const struct regraph_engine *engine,
                                struct regraph_pool pool,
                                uint64_t bytes,
                                regraph_stream stream,
                                struct regraph_loan *loan);

/**
 * Destroys the handle of a loan, which has `handle_bytes` bytes; the loan stays. Does nothing for NULL.
 *
 * Threads: any.
 */
void regraph_loan_handle_destroy(uint8_t *handle,
                                 size_t handle_bytes);

/**
 * Asks the process that has a loan for it, and waits at most so many milliseconds until it is back; UINT64_MAX has no
 * end. A loan that no process has taken is back at once. `is_back` gets whether it is.
 *
 * Threads: any. Other calls go on meanwhile.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_LOAN.
 */
regraph_error regraph_loan_recall(const struct regraph_engine *engine,
                                  struct regraph_loan_id loan,
                                  uint64_t milliseconds,
                                  bool *is_back);

/**
 * Where a loan of this process to others is: `state` gets one of the REGRAPH_LOAN constants.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_LOAN.
 */
regraph_error regraph_loan_get_state(const struct regraph_engine *engine,
                                     struct regraph_loan_id loan,
                                     int32_t *state);

/**
 * Takes the loan that a handle of `handle_bytes` bytes names, made by another process (regraph_pool_lend()) or by
 * another engine of this one, and maps its memory for this engine's device; what it holds is undefined. `taken` gets the
 * loan. It is this process's until regraph_loan_give_back(), but the lender waits for it from when it asks on: see
 * regraph_loan_wait_for_recall(). Waits some seconds at most for the lender's answer. Where the engine is destroyed
 * before, the memory stays mapped, and the process has the loan until its end.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NOT_TAKEN, REGRAPH_ERROR_NULL, REGRAPH_ERROR_DRIVER. The loan is the lender's then.
 */
regraph_error regraph_loan_take(const struct regraph_engine *engine,
                                const uint8_t *handle,
                                size_t handle_bytes,
                                struct regraph_taken_loan *taken);

/**
 * Whether the lender of a loan that this process has taken has asked for it, or has ended, after a wait of at most so many
 * milliseconds; UINT64_MAX has no end. A lender that has ended waits for nothing, and the memory stays this process's
 * until it gives the loan back.
 *
 * Threads: any. Other calls go on meanwhile.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_LOAN.
 */
regraph_error regraph_loan_wait_for_recall(const struct regraph_engine *engine,
                                           struct regraph_loan_id loan,
                                           uint64_t milliseconds,
                                           bool *is_recalled);

/**
 * Gives a loan that this process has taken back, after a wait until the engine's device has done all work, and unmaps
 * its memory. Work of other devices that uses it must have completed before, and no graph that does may be launched any
 * more.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_LOAN. REGRAPH_ERROR_DEVICE_CAPTURES, and REGRAPH_ERROR_DRIVER where the device cannot be
 * waited for: the loan is this process's still.
 */
regraph_error regraph_loan_give_back(const struct regraph_engine *engine,
                                     struct regraph_loan_id loan);

/**
 * Says what becomes of what live blocks of a region hold from its next sleep on: REGRAPH_BACKUP_HOST,
 * REGRAPH_BACKUP_NONE or REGRAPH_BACKUP_DEVICE. A region is all pools that regraph_pool_create_in_region() made with one tag;
 * without this call it has REGRAPH_BACKUP_HOST. `tag` is UTF-8 and is copied. What is said stays until
 * regraph_regions_forget(), also while the region has no pools.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_ARGUMENT, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_set_backup(const struct regraph_engine *engine,
                                         const char *tag,
                                         int32_t backup);

/**
 * Has what live blocks of a region hold kept in a file in the folder `folder` from its next sleep on
 * (REGRAPH_BACKUP_FILE): all is there before any device memory goes. Of the host's memory a sleep and a wake lock at most
 * 4 MiB for each of up to 16 threads. Each sleep of the region makes a file for this user alone. It has no name for other
 * processes to find, and goes when all that it keeps is awake or the process ends, however it ends. In a folder of a
 * tmpfs, such as /dev/shm, contents are kept in memory that is not locked. `tag` and `folder` are UTF-8 and are copied;
 * whether the folder can be written to is seen when the region goes to sleep.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_set_file_backup(const struct regraph_engine *engine,
                                              const char *tag,
                                              const char *folder);

/**
 * Has what live blocks of a region hold kept in the file `file` from its next sleep on (REGRAPH_BACKUP_SHARED). Other
 * processes may name the file too, so that workers with the same weights keep them once. A process that goes to sleep
 * compares what its blocks hold with the file, byte by byte. If all is the same, the process writes nothing. If not,
 * or if there is no file, the process writes one and puts it in the other's place, which does not concern processes
 * that keep that. While another process writes, this one waits, for up to a minute and a second for each 128 MiB, and
 * compares with the new file; if that differs too, this process keeps its contents in a file without a name. Only a
 * backup of this user's is replaced: what else has the name stays as it is, and the process keeps its contents in a file
 * without a name and warns. In a folder of a tmpfs, such as /dev/shm, the file is memory that processes share. It stays
 * until the caller removes it, as an empty file `.NAME.lock` beside it does, and nothing else may write to it. Each
 * region of a process needs a file of its own. `tag` and `file` are UTF-8 and are copied; whether the file can be
 * written is seen when the region goes to sleep.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_set_shared_backup(const struct regraph_engine *engine,
                                                const char *tag,
                                                const char *file);

/**
 * Forgets what was said of a region; does nothing where nothing was. One that has pools has REGRAPH_BACKUP_HOST from
 * now on. One that has none is unknown from now on and does not sleep: pools that are made of its tag later are awake.
 * For hosts that go through many tags: a region that has no pools and of which nothing was said is forgotten by itself.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_forget(const struct regraph_engine *engine,
                                     const char *tag);

/**
 * Gives the device memory of regions back to the driver and keeps addresses, blocks and graphs, until
 * regraph_regions_wake(). `tags` names `count` regions; NULL with a count of 0 means all. `bytes` gets the bytes that were
 * given back; it may be NULL. Regions that sleep stay as they are. Contents of live blocks are kept, those of
 * regraph_pool_borrow() included, and those of graphs' outputs that were freed. Those of blocks that a capture both
 * allocated and freed are not: each launch is taken to write them anew, so what only the run of the capture wrote
 * there is lost.
 *
 * Waits for the device first. From the call until the regions are awake no work may be submitted that uses
 * their memory: allocations from them, captures into them and launches by regraph_launch_graph() and
 * regraph_launch_executable() are refused (REGRAPH_ERROR_POOL_SUSPENDED), other work the engine does not see.
 * Blocks can be freed, and graphs released. Other processes may not have the memory mapped.
 *
 * Threads: any. Contents are copied at some 55 GB a second; where too few pages of the host are locked, that comes
 * first (see regraph_regions_reserve_host()). Other calls on the engine go on meanwhile; those that have regions of it
 * sleep or wake, or change their memory of the host, take turns.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_REGION; REGRAPH_ERROR_INVALID_TEXT; REGRAPH_ERROR_DEVICE_CAPTURES while a stream of the
 * device captures; REGRAPH_ERROR_POOL_BUSY; REGRAPH_ERROR_CANNOT_SUSPEND; REGRAPH_ERROR_HOST_OUT_OF_MEMORY;
 * REGRAPH_ERROR_IO where a file cannot be made or written; REGRAPH_ERROR_ORDER_LOST: nothing has changed, but that
 * locked pages may stay for the next sleep. After REGRAPH_ERROR_DRIVER the regions may sleep in part: another call goes
 * on, and regraph_regions_wake() brings all back with its contents.
 */
regraph_error regraph_regions_sleep(const struct regraph_engine *engine,
                                    const char *const *tags,
                                    size_t count,
                                    uint64_t *bytes);

/**
 * Like regraph_regions_sleep(), but does not wait for work that was submitted. What uses live blocks of the
 * regions must have completed; launches that the library made, and work on freed blocks, are looked at. The
 * copies are waited for.
 *
 * Threads: any.
 *
 * Errors: as regraph_regions_sleep(); REGRAPH_ERROR_POOL_RUNS while a graph of the regions may be running.
 */
regraph_error regraph_regions_try_sleep(const struct regraph_engine *engine,
                                        const char *const *tags,
                                        size_t count,
                                        uint64_t *bytes);

/**
 * Brings the device memory of sleeping regions back at the same addresses, and what their live blocks held
 * where that was kept. `tags` names `count` regions; NULL with a count of 0 means all. `bytes` gets the bytes that came; it may
 * be NULL. When the call returns any stream may use the memory. Where memory is short, what is free in other
 * pools is given back for it.
 *
 * Threads: any. Other calls on the engine go on meanwhile; those that have regions of it sleep or wake take turns.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_REGION, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_RESUME_OUT_OF_MEMORY,
 * REGRAPH_ERROR_DRIVER; REGRAPH_ERROR_IO where a file cannot be read, REGRAPH_ERROR_HOST_OUT_OF_MEMORY where no memory
 * can be locked for that. All that was asked for sleeps then, and what is kept is untouched: another call, for fewer
 * regions, goes on.
 */
regraph_error regraph_regions_wake(const struct regraph_engine *engine,
                                   const char *const *tags,
                                   size_t count,
                                   uint64_t *bytes);

/**
 * Whether a region sleeps, or a part of it.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_REGION, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_is_asleep(const struct regraph_engine *engine,
                                        const char *tag,
                                        bool *asleep);

/**
 * Page-locked memory of the host that the engine's regions hold, in bytes: what sleeping regions keep
 * there, and what earlier sleeps needed. Files are not counted.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_get_host_bytes(const struct regraph_engine *engine,
                                             uint64_t *bytes);

/**
 * Locks pages of the host ahead of a sleep, until `bytes` bytes of them keep nothing: a sleep that keeps no more locks
 * none. Takes some 45 us a MiB where the process has 16 processors, all of which lock pages, and 330 us where it has one.
 * `locked` gets the bytes that were locked; it may be NULL.
 *
 * Threads: any. Calls on the engine go on meanwhile; those on its regions wait.
 *
 * Errors: REGRAPH_ERROR_HOST_OUT_OF_MEMORY, which gives back what was locked, and locks nothing where the engine's
 * regions would hold more than the host has for this process (its memory, or the least limit of its memory cgroups);
 * REGRAPH_ERROR_DRIVER, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_reserve_host(const struct regraph_engine *engine,
                                           uint64_t bytes,
                                           uint64_t *locked);

/**
 * Gives page-locked memory that keeps nothing at present back to the host. `bytes` gets the bytes that were
 * given back; it may be NULL. The next sleep locks pages anew, which takes longer than a copy.
 *
 * Threads: any. No other call waits while the memory goes.
 *
 * Errors: REGRAPH_ERROR_DRIVER, REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_free_host(const struct regraph_engine *engine,
                                        uint64_t *bytes);

/**
 * Lists the regions that have pools. `regions` gets a list to be destroyed with regraph_region_list_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_regions_report(const struct regraph_engine *engine,
                                     struct regraph_region_list **regions);

/**
 * The number of regions of a list; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_region_list_count(const struct regraph_region_list *regions);

/**
 * One region of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
 *
 * Threads: any.
 */
const struct regraph_region *regraph_region_list_get(const struct regraph_region_list *regions,
                                                     size_t index);

/**
 * Destroys a list. Does nothing for NULL.
 *
 * Threads: any, while no other call uses the list.
 */
void regraph_region_list_destroy(struct regraph_region_list *regions);

/**
 * Lists every free range of a pool, in order of addresses, with whether `stream` can take it now, and if not, why not.
 * `explanation` gets a list to be destroyed with regraph_explanation_destroy().
 *
 * Threads: any; not while another thread captures into the same graph.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_PER_THREAD_STREAM,
 * REGRAPH_ERROR_DRIVER.
 */
regraph_error regraph_explain(const struct regraph_engine *engine,
                              struct regraph_pool pool,
                              regraph_stream stream,
                              struct regraph_explanation **explanation);

/**
 * The number of ranges of an explanation; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_explanation_count(const struct regraph_explanation *explanation);

/**
 * One range of an explanation, by its index from 0. Lives as long as the explanation; NULL for
 * NULL and for an index beyond the end.
 *
 * Threads: any.
 */
const struct regraph_free_range *regraph_explanation_get(const struct regraph_explanation *explanation,
                                                         size_t index);

/**
 * Destroys an explanation. Does nothing for NULL.
 *
 * Threads: any, while no other call uses the explanation.
 */
void regraph_explanation_destroy(struct regraph_explanation *explanation);

/**
 * The statistics of all pools.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_statistics(const struct regraph_engine *engine,
                                     struct regraph_statistics *statistics);

/**
 * The figures of all pools, captures and regions as a text that Prometheus reads, in its format 0.0.4, to be
 * destroyed with regraph_string_destroy(). The table "Metrics" of OPERATING.md lists them.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_metrics(const struct regraph_engine *engine,
                              char **text);

/**
 * The statistics of a pool.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_UNKNOWN_POOL.
 */
regraph_error regraph_pool_get_statistics(const struct regraph_engine *engine,
                                          struct regraph_pool pool,
                                          struct regraph_statistics *statistics);

/**
 * Resets peaks to current values.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_reset_peaks(const struct regraph_engine *engine);

/**
 * Resets all sums over time and all counts to zero.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_reset_accumulated(const struct regraph_engine *engine);

/**
 * Lists all pools of an engine, with those that regraph_pool_release() gave up and whose memory is still in
 * use. `pools` gets a list to be destroyed with regraph_pool_list_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_pools(const struct regraph_engine *engine,
                                struct regraph_pool_list **pools);

/**
 * The number of pools of a list; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_pool_list_count(const struct regraph_pool_list *pools);

/**
 * One pool of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
 *
 * Threads: any.
 */
const struct regraph_pool_info *regraph_pool_list_get(const struct regraph_pool_list *pools,
                                                      size_t index);

/**
 * Destroys a list. Does nothing for NULL.
 *
 * Threads: any, while no other call uses the list.
 */
void regraph_pool_list_destroy(struct regraph_pool_list *pools);

/**
 * Sets the most memory that all pools together may hold, in bytes; REGRAPH_NO_LIMIT removes the
 * limit. Does not give memory back that is held already: see regraph_trim().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_set_memory_limit(const struct regraph_engine *engine, uint64_t bytes);

/**
 * Sets the most memory that all pools together may hold, as a share of the device's memory from 0 to 1.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_INVALID_ARGUMENT; REGRAPH_ERROR_DRIVER, if it does not know the size of the device's memory.
 */
regraph_error regraph_set_memory_fraction(const struct regraph_engine *engine,
                                          double fraction);

/**
 * The most memory that all pools together may hold, in bytes, or REGRAPH_NO_LIMIT.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_memory_limit(const struct regraph_engine *engine, uint64_t *bytes);

/**
 * Gives memory back to the driver that is completely free. Does not wait: memory that running work
 * may still use stays, and so does memory of graphs. `emptied` may be NULL.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_empty_cache(const struct regraph_engine *engine,
                                  struct regraph_emptied *emptied);

/**
 * Gives memory back to the driver that is completely free, until no more than `keep` bytes are held;
 * memory that was unused longest goes first. Does not wait: memory that running work may still use
 * stays, and so does memory of graphs. `emptied` may be NULL.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_trim(const struct regraph_engine *engine,
                           uint64_t keep,
                           struct regraph_emptied *emptied);

/**
 * Lists every block that has not been freed. `leaks` gets a list to be destroyed with regraph_leak_list_destroy().
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_get_leaks(const struct regraph_engine *engine,
                                struct regraph_leak_list **leaks);

/**
 * The number of blocks of a list; 0 for NULL.
 *
 * Threads: any.
 */
size_t regraph_leak_list_count(const struct regraph_leak_list *leaks);

/**
 * One block of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
 *
 * Threads: any.
 */
const struct regraph_leak *regraph_leak_list_get(const struct regraph_leak_list *leaks,
                                                 size_t index);

/**
 * Destroys a list. Does nothing for NULL.
 *
 * Threads: any, while no other call uses the list.
 */
void regraph_leak_list_destroy(struct regraph_leak_list *leaks);

/**
 * Registers a callback for every request that fails for lack of memory: for blocks
 * (regraph_allocate(), regraph_allocate_fixed() and their like), for pools and regions that cannot come back
 * (regraph_pool_resume(), regraph_regions_wake()), and for captures with a plan that cannot have their memory at
 * their end. It gets `user_data`, which may be NULL and must point to something that lives as long as the
 * engine: a callback cannot be removed. Several threads may call it at once.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_NULL.
 */
regraph_error regraph_observe_out_of_memory(const struct regraph_engine *engine,
                                            regraph_out_of_memory_callback callback,
                                            void *user_data);

/**
 * Writes a snapshot of the engine as JSON: all its memory, block by block, with what each freed block waits for, and
 * the history if one is recorded. `path` is a file name in UTF-8; a file that is there is replaced.
 *
 * Threads: any. Other calls on the engine wait while the snapshot is taken.
 *
 * Errors: REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_write_snapshot_json(const struct regraph_engine *engine,
                                          const char *path);

/**
 * Writes a snapshot as a pickle, which pytorch.org/memory_viz opens.
 *
 * Threads: any. Other calls on the engine wait while the snapshot is taken.
 *
 * Errors: REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
 */
regraph_error regraph_write_snapshot_pickle(const struct regraph_engine *engine, const char *path);

/**
 * Returns a snapshot as JSON text, to be destroyed with regraph_string_destroy().
 *
 * Threads: any. Other calls on the engine wait while the snapshot is taken.
 *
 * Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_snapshot_json(const struct regraph_engine *engine, char **json);

/**
 * Destroys a text of regraph_snapshot_json() or regraph_metrics(). Does nothing for NULL.
 *
 * Threads: any.
 */
void regraph_string_destroy(char *string);

/**
 * Records the latest `entries` events from now on, for snapshots; 0 turns this off. Events that
 * were recorded before are dropped.
 *
 * Threads: any.
 *
 * Errors: REGRAPH_ERROR_POISONED.
 */
regraph_error regraph_record_history(const struct regraph_engine *engine, size_t entries);

/**
 * Creates a stream of the simulated device (cuStreamCreate).
 *
 * Threads: any, as for every regraph_sim call.
 *
 * Errors of every regraph_sim call: REGRAPH_ERROR_NOT_SIMULATED for an engine on a CUDA device; REGRAPH_ERROR_NULL;
 * REGRAPH_ERROR_DRIVER for calls that the CUDA driver would refuse, with its code in regraph_last_driver_code().
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
 * Makes later work on `stream` wait for the work that is on `on` now (cuEventRecord and
 * cuStreamWaitEvent). If `on` captures, `stream` joins the capture.
 */
regraph_error regraph_sim_wait(const struct regraph_engine *engine,
                               regraph_stream stream,
                               regraph_stream on);

/**
 * Begins a capture on a simulated stream (cuStreamBeginCapture, thread-local mode).
 */
regraph_error regraph_sim_begin_capture(const struct regraph_engine *engine, regraph_stream stream);

/**
 * The capture that a simulated stream is in, and the graph under capture (cuStreamGetCaptureInfo):
 * 0 and NULL if the stream does not capture. Either pointer may be NULL.
 */
regraph_error regraph_sim_capture_info(const struct regraph_engine *engine,
                                       regraph_stream stream,
                                       regraph_capture_id *capture,
                                       regraph_graph *graph);

/**
 * Invalidates the capture that a simulated stream is in, as an invalid operation does.
 */
regraph_error regraph_sim_invalidate_capture(const struct regraph_engine *engine,
                                             regraph_stream stream);

/**
 * Ends the capture that began on a simulated stream (cuStreamEndCapture). Every stream that joined it has been waited
 * for, directly or not, by this one. `graph` is to be destroyed with regraph_sim_destroy_graph().
 */
regraph_error regraph_sim_end_capture(const struct regraph_engine *engine,
                                      regraph_stream stream,
                                      regraph_graph *graph);

/**
 * Destroys a simulated graph (cuGraphDestroy).
 */
regraph_error regraph_sim_destroy_graph(const struct regraph_engine *engine, regraph_graph graph);

/**
 * Makes a simulated graph ready to launch (cuGraphInstantiate). `executable` is to be destroyed
 * with regraph_sim_destroy_executable().
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
 * Completes the work of a simulated stream, and the work that it waits for, and no other
 * (cuStreamSynchronize). Simulated work never completes by itself.
 */
regraph_error regraph_sim_synchronize_stream(const struct regraph_engine *engine,
                                             regraph_stream stream);

/**
 * Completes all work of the simulated device (cuCtxSynchronize).
 */
regraph_error regraph_sim_synchronize(const struct regraph_engine *engine);

/**
 * The simulated device's memory that is in use, in bytes.
 */
regraph_error regraph_sim_used_bytes(const struct regraph_engine *engine, uint64_t *bytes);

/**
 * Makes a later call of the engine to the simulated driver fail, without effect and with the code 800: the next one
 * for 0, the one after it for 1, and so on. For tests of how a host handles that.
 */
regraph_error regraph_sim_fail_driver_call(const struct regraph_engine *engine,
                                           uint64_t skip);

/**
 * Panics inside the library, as a bug would, and returns REGRAPH_ERROR_PANIC. For tests of how a
 * host handles that; the engine can be used as before. The panic is written to standard error.
 */
regraph_error regraph_sim_panic(const struct regraph_engine *engine);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REGRAPH_H */
