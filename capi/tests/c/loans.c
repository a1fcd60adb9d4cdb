/* What a pool's graphs do not keep between launches, lent to other processes. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A process answers within so many milliseconds; a wait that is to be in vain takes so many. */
#define LONG 60000
#define SHORT 20

typedef struct {
    regraph_engine *engine;
    regraph_pool pool;
    regraph_stream a;
    regraph_graph_id graph;
} bench;

static regraph_engine *engine_with(const char *settings) {
    regraph_config *config = NULL;
    regraph_engine *engine = NULL;
    OK(regraph_config_create(&config));
    OK(regraph_config_set_settings(config, settings));
    OK(regraph_engine_create_sim(256 * MIB, config, &engine));
    regraph_config_destroy(config);
    return engine;
}

/* A graph with a temporary block of 8 MiB and an output. */
static bench begin(const char *settings) {
    bench it;
    regraph_capture_id capture;
    regraph_capture_report report;
    regraph_block temporary, output;
    memset(&it, 0, sizeof it);
    it.engine = engine_with(settings);
    OK(regraph_pool_create(it.engine, REGRAPH_NO_LIMIT, &it.pool));
    OK(regraph_sim_create_stream(it.engine, &it.a));
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.a, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
    OK(regraph_capture_allocate(it.engine, capture, 8 * MIB, it.a, &temporary));
    OK(regraph_capture_allocate(it.engine, capture, MIB, it.a, &output));
    OK(regraph_sim_launch(it.engine, it.a, false));
    OK(regraph_free(it.engine, temporary.id));
    OK(regraph_finish_stream_capture(it.engine, capture, &report));
    it.graph = report.graph;
    OK(regraph_launch_graph(it.engine, it.graph, it.a));
    return it;
}

static void end(bench it) {
    OK(regraph_launch_graph(it.engine, it.graph, it.a));
    OK(regraph_release_graph(it.engine, it.graph));
    regraph_engine_destroy(it.engine);
}

static regraph_loan lent(bench it, uint64_t bytes) {
    regraph_loan loan;
    memset(&loan, 0, sizeof loan);
    OK(regraph_pool_lend(it.engine, it.pool, bytes, it.a, &loan));
    CHECK(loan.bytes == bytes && loan.handle != NULL && loan.handle_bytes > 64);
    return loan;
}

static uint64_t lent_bytes(bench it) {
    uint64_t bytes = 1;
    OK(regraph_pool_get_lent_bytes(it.engine, it.pool, &bytes));
    return bytes;
}

static int32_t state(bench it, regraph_loan loan) {
    int32_t found = -1;
    OK(regraph_loan_get_state(it.engine, loan.id, &found));
    return found;
}

static bool recalled(bench it, regraph_loan loan, uint64_t milliseconds) {
    bool is_back = false;
    OK(regraph_loan_recall(it.engine, loan.id, milliseconds, &is_back));
    return is_back;
}

/* A process that was forked from a borrower has no loan. */
static void a_fork_gives_nothing_back(regraph_engine *theirs, regraph_taken_loan taken) {
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        IS(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_give_back(theirs, taken.id));
        _exit(EXIT_SUCCESS);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
}

static void lent_taken_asked_for_and_given_back(void) {
    bench it = begin("exportable:True");
    regraph_engine *theirs = engine_with("exportable:True");
    regraph_loan loan = lent(it, 8 * MIB), none;
    regraph_taken_loan taken, again;
    bool is_recalled = true;
    int32_t known;
    CHECK(state(it, loan) == REGRAPH_LOAN_OFFERED && lent_bytes(it) == 8 * MIB);
    IS(REGRAPH_ERROR_BLOCKS_LENT, regraph_launch_graph(it.engine, it.graph, it.a));
    IS(REGRAPH_ERROR_NOTHING_LENT, regraph_pool_lend(it.engine, it.pool, 8 * MIB, it.a, &none));
    SAYS("lends no 8388608 bytes now");

    OK(regraph_loan_take(theirs, loan.handle, loan.handle_bytes, &taken));
    CHECK(taken.bytes == 8 * MIB && taken.address % 512 == 0 && state(it, loan) == REGRAPH_LOAN_TAKEN);
    NAMED(REGRAPH_ERROR_NOT_TAKEN, regraph_loan_take(theirs, loan.handle, loan.handle_bytes, &again));
    SAYS("another process has taken it");
    OK(regraph_loan_wait_for_recall(theirs, taken.id, 0, &is_recalled));
    CHECK(!is_recalled && !recalled(it, loan, SHORT));
    OK(regraph_loan_wait_for_recall(theirs, taken.id, LONG, &is_recalled));
    CHECK(is_recalled);
    /* So it is said to whoever asks next. */
    is_recalled = false;
    OK(regraph_loan_wait_for_recall(theirs, taken.id, 0, &is_recalled));
    CHECK(is_recalled);
    a_fork_gives_nothing_back(theirs, taken);
    CHECK(!recalled(it, loan, SHORT));
    IS(REGRAPH_ERROR_BLOCKS_LENT, regraph_launch_graph(it.engine, it.graph, it.a));

    /* While something captures there, a wait would ruin that. */
    {
        regraph_stream stream;
        regraph_pool pool;
        regraph_capture_id capture;
        OK(regraph_sim_create_stream(theirs, &stream));
        OK(regraph_pool_create(theirs, REGRAPH_NO_LIMIT, &pool));
        OK(regraph_begin_stream_capture(theirs, pool, stream, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
        IS(REGRAPH_ERROR_DEVICE_CAPTURES, regraph_loan_give_back(theirs, taken.id));
        OK(regraph_abandon_capture(theirs, capture));
    }
    OK(regraph_loan_give_back(theirs, taken.id));
    CHECK(recalled(it, loan, LONG) && lent_bytes(it) == 0 && state(it, loan) == REGRAPH_LOAN_BACK);
    OK(regraph_launch_graph(it.engine, it.graph, it.a));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_give_back(theirs, taken.id));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_wait_for_recall(theirs, taken.id, 0, &is_recalled));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_get_state(theirs, loan.id, &known));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_recall(theirs, loan.id, 0, &is_recalled));
    regraph_loan_handle_destroy(loan.handle, loan.handle_bytes);

    /* One that no process has taken is back at once, and none takes it any more. */
    loan = lent(it, MIB);
    CHECK(recalled(it, loan, 0));
    NAMED(REGRAPH_ERROR_NOT_TAKEN, regraph_loan_take(theirs, loan.handle, loan.handle_bytes, &taken));
    regraph_loan_handle_destroy(loan.handle, loan.handle_bytes);
    regraph_engine_destroy(theirs);
    end(it);
}

static void what_is_not_lent_or_taken(void) {
    bench it = begin("");
    regraph_loan loan;
    regraph_taken_loan taken;
    regraph_capture_id capture;
    bool is_back;
    int32_t known;
    IS(REGRAPH_ERROR_NOT_SHARED, regraph_pool_lend(it.engine, it.pool, MIB, it.a, &loan));
    SAYS("exportable");
    IS(REGRAPH_ERROR_NOTHING_LENT, regraph_pool_lend(it.engine, it.pool, 16 * MIB, it.a, &loan));
    IS(REGRAPH_ERROR_ZERO_BYTES, regraph_pool_lend(it.engine, it.pool, 0, it.a, &loan));
    CHECK(lent_bytes(it) == 0);
    OK(regraph_begin_stream_capture(it.engine, it.pool, it.a, REGRAPH_CAPTURE_THREAD_LOCAL, &capture));
    NAMED(REGRAPH_ERROR_CAPTURING, regraph_pool_lend(it.engine, it.pool, MIB, it.a, &loan));
    OK(regraph_abandon_capture(it.engine, capture));
    NAMED(REGRAPH_ERROR_NOT_TAKEN, regraph_loan_take(it.engine, (const uint8_t *)"loan", 4, &taken));
    IS(REGRAPH_ERROR_NULL, regraph_loan_take(it.engine, NULL, 4, &taken));
    IS(REGRAPH_ERROR_NULL, regraph_loan_take(it.engine, (const uint8_t *)"", 0, NULL));
    IS(REGRAPH_ERROR_NULL, regraph_pool_lend(NULL, it.pool, MIB, it.a, &loan));
    IS(REGRAPH_ERROR_NULL, regraph_pool_lend(it.engine, it.pool, MIB, it.a, NULL));
    memset(&loan, 0, sizeof loan);
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_recall(it.engine, loan.id, 0, &is_back));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_get_state(it.engine, loan.id, &known));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_wait_for_recall(it.engine, loan.id, 0, &is_back));
    NAMED(REGRAPH_ERROR_UNKNOWN_LOAN, regraph_loan_give_back(it.engine, loan.id));
    regraph_loan_handle_destroy(NULL, 0);
    end(it);
}

/* Reads so many bytes, or fails. */
static void read_all(int file, void *to, size_t bytes) {
    char *at = to;
    while (bytes > 0) {
        const ssize_t some = read(file, at, bytes);
        CHECK(some > 0);
        at += some;
        bytes -= (size_t)some;
    }
}

/* The other process: takes a loan, says so, gives it back once it is asked, or is killed before. */
static void borrow(int from, int to) {
    regraph_engine *engine = engine_with("exportable:True");
    regraph_taken_loan taken;
    uint8_t handle[1024];
    size_t bytes = 0;
    bool is_recalled = false;
    read_all(from, &bytes, sizeof bytes);
    CHECK(bytes <= sizeof handle);
    read_all(from, handle, bytes);
    OK(regraph_loan_take(engine, handle, bytes, &taken));
    CHECK(write(to, "t", 1) == 1);
    OK(regraph_loan_wait_for_recall(engine, taken.id, UINT64_MAX, &is_recalled));
    CHECK(is_recalled);
    read_all(from, handle, 1);
    OK(regraph_loan_give_back(engine, taken.id));
    regraph_engine_destroy(engine);
    exit(EXIT_SUCCESS);
}

/* Forks before this process has an engine. */
static void another_process_borrows(bool is_killed) {
    int there[2], here[2], status = 0;
    char word;
    pid_t child;
    bench it;
    regraph_loan loan;
    CHECK(pipe(there) == 0 && pipe(here) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) borrow(there[0], here[1]);
    it = begin("exportable:True");
    loan = lent(it, 4 * MIB);
    CHECK(write(there[1], &loan.handle_bytes, sizeof loan.handle_bytes) == (ssize_t)sizeof loan.handle_bytes);
    CHECK(write(there[1], loan.handle, loan.handle_bytes) == (ssize_t)loan.handle_bytes);
    read_all(here[0], &word, 1);
    CHECK(state(it, loan) == REGRAPH_LOAN_TAKEN && !recalled(it, loan, SHORT));
    IS(REGRAPH_ERROR_BLOCKS_LENT, regraph_launch_graph(it.engine, it.graph, it.a));
    if (is_killed) {
        CHECK(kill(child, SIGKILL) == 0);
    } else {
        CHECK(write(there[1], "b", 1) == 1);
    }
    CHECK(recalled(it, loan, LONG) && lent_bytes(it) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(is_killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    regraph_loan_handle_destroy(loan.handle, loan.handle_bytes);
    end(it);
}

/* Where the process listens that has made a handle of a loan. */
static socklen_t listens_at(const uint8_t *handle, struct sockaddr_un *at) {
    uint32_t process;
    int length, i;
    memcpy(&process, handle + 56, sizeof process);
    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    length = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "regraph-%u-", process);
    for (i = 40; i < 56; i++, length += 2) snprintf(at->sun_path + 1 + length, 3, "%02x", handle[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* A loan is back by one word and no other. */
static void a_borrower_says_something_else(void) {
    bench it = begin("exportable:True");
    regraph_loan loan = lent(it, MIB);
    struct sockaddr_un at;
    const socklen_t length = listens_at(loan.handle, &at);
    const int to = socket(AF_UNIX, SOCK_STREAM, 0), self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    uint8_t request[12], word = 0;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec one = {&word, 1};
    struct msghdr message;
    memset(request, 0xff, 4);
    memcpy(request + 4, loan.handle + 8, 8);
    memset(&message, 0, sizeof message);
    memset(&rights, 0, sizeof rights);
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = &rights;
    message.msg_controllen = sizeof rights;
    rights.header.cmsg_level = SOL_SOCKET;
    rights.header.cmsg_type = SCM_RIGHTS;
    rights.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&rights.header), &self, sizeof self);
    CHECK(to >= 0 && self >= 0 && connect(to, (const struct sockaddr *)&at, length) == 0);
    CHECK(write(to, request, sizeof request) == (ssize_t)sizeof request && sendmsg(to, &message, 0) == 1);
    read_all(to, &word, 1);
    CHECK(word == 1 && state(it, loan) == REGRAPH_LOAN_TAKEN);
    CHECK(write(to, "\1", 1) == 1 && !recalled(it, loan, SHORT));
    CHECK(write(to, "\3", 1) == 1 && recalled(it, loan, LONG));
    close(to);
    close(self);
    regraph_loan_handle_destroy(loan.handle, loan.handle_bytes);
    end(it);
}

/* A lender whose process takes connections and closes them at once, until it is killed. */
static void close_all(const struct sockaddr_un *at, socklen_t bytes, int ready) {
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(listener >= 0 && bind(listener, (const struct sockaddr *)at, bytes) == 0 && listen(listener, 8) == 0);
    CHECK(write(ready, "r", 1) == 1);
    /* Where the other process ends before. */
    alarm(30);
    for (;;) close(accept(listener, NULL, NULL));
}

/* Writing to a connection that was closed must not end this process by SIGPIPE. */
static void a_lender_that_closes_connections(void) {
    struct sockaddr_un at;
    regraph_engine *engine;
    regraph_taken_loan taken;
    uint8_t handle[88];
    int here[2], round;
    char word;
    pid_t child;
    const uint32_t process = (uint32_t)getpid();
    memset(&at, 0, sizeof at);
    at.sun_family = AF_UNIX;
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "regraph-%u-%032d", process, 0);
    /* A loan of 1 byte in a piece of 1 byte, whose sender has no secret and no board. */
    memset(handle, 0, sizeof handle);
    memcpy(handle, "regloan\1\1", 9);
    handle[24] = 1;
    memcpy(handle + 32, "regraph\1", 8);
    memcpy(handle + 56, &process, 4);
    memset(handle + 60, 0xff, 4);
    handle[64] = handle[68] = handle[76] = 1;
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR && pipe(here) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const size_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(at.sun_path + 1);
        close_all(&at, (socklen_t)length, here[1]);
    }
    read_all(here[0], &word, 1);
    engine = engine_with("exportable:True");
    for (round = 0; round < 300; round++) {
        NAMED(REGRAPH_ERROR_NOT_TAKEN, regraph_loan_take(engine, handle, sizeof handle, &taken));
    }
    regraph_engine_destroy(engine);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

int main(void) {
    a_lender_that_closes_connections();
    another_process_borrows(false);
    another_process_borrows(true);
    lent_taken_asked_for_and_given_back();
    a_borrower_says_something_else();
    what_is_not_lent_or_taken();
    printf("%d checks\n", checks);
    return 0;
}
