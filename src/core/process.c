/* Other programs: started without a shell, polled, and gone when this process is, however it ends.
 *
 * Between fork and exec only calls are made that are safe while other threads hold locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"

extern char **environ;

static int open_as(int target, const char *path, int flags) {
  int file = open(path, flags, 0666);
  if (file < 0) {
    return -1;
  }
  if (file == target) { /* that stream was closed in here */
    return 0;
  }
  int failed = dup2(file, target) < 0;
  close(file);
  return failed ? -1 : 0;
}

/* in the child; comes back only on error */
static void become(const char *const *words, const char *out_path, const char *err_path,
                   pid_t parent) {
  int create = O_WRONLY | O_CREAT | O_TRUNC;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  /* the terminal's Ctrl-C is the parent's to pass on */
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return;
  }
  if (getppid() != parent) { /* it ended before that */
    _exit(127);
  }
  if (open_as(0, "/dev/null", O_RDONLY) != 0 || open_as(1, out_path, create) != 0 ||
      open_as(2, err_path, create) != 0) {
    return;
  }
  execve(words[0], (char *const *)words, environ);
}

/* 0 once the child runs the program; its errno otherwise */
static int outcome(int pipe_end) {
  int reason = 0;
  ssize_t n;
  do {
    n = read(pipe_end, &reason, sizeof reason);
  } while (n < 0 && errno == EINTR);
  return n == (ssize_t)sizeof reason ? reason : 0;
}

int neap_process_start(const char *const *words, const char *out_path, const char *err_path,
                       double *pid) {
  if (words == NULL || words[0] == NULL || out_path == NULL || err_path == NULL || pid == NULL) {
    return neap__error(NEAP_ERR_INVALID, "process: expected a program, two paths and a result");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return neap__error(NEAP_ERR_IO, "cannot start '%s': %s", words[0], strerror(errno));
  }
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    become(words, out_path, err_path, parent);
    int reason = errno;
    ssize_t n = write(ends[1], &reason, sizeof reason);
    _exit(n < 0 ? 126 : 127);
  }
  int reason = child < 0 ? errno : 0;
  close(ends[1]);
  if (child > 0) {
    reason = outcome(ends[0]);
  }
  close(ends[0]);
  if (reason != 0) {
    if (child > 0) {
      while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
      }
    }
    return neap__error(NEAP_ERR_IO, "cannot start '%s' with its output in '%s' and '%s': %s",
                       words[0], out_path, err_path, strerror(reason));
  }
  *pid = (double)child;
  return NEAP_OK;
}

/* 0 with an error set where it is none; those below stand for whole groups of processes */
static pid_t read_pid(double number) {
  if (!(number >= 1 && number <= 4194304.0) || number != floor(number)) {
    neap__error(NEAP_ERR_INVALID, "process: expected a process's number, found %g", number);
    return 0;
  }
  return (pid_t)number;
}

int neap_process_status(double number, int *has_ended, int *status) {
  pid_t pid = read_pid(number), got;
  int state = 0;
  if (pid == 0) {
    return NEAP_ERR_INVALID;
  }
  if (has_ended == NULL || status == NULL) {
    return neap__error(NEAP_ERR_INVALID, "process: expected two results");
  }
  do {
    got = waitpid(pid, &state, WNOHANG);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return neap__error(NEAP_ERR_STATE, "process %d: %s", (int)pid, strerror(errno));
  }
  *has_ended = got == pid;
  if (got == pid) {
    *status = WIFSIGNALED(state) ? -WTERMSIG(state) : WEXITSTATUS(state);
  }
  return NEAP_OK;
}

int neap_process_signal(double number, int signal_number) {
  pid_t pid = read_pid(number);
  if (pid == 0) {
    return NEAP_ERR_INVALID;
  }
  return kill(pid, signal_number) == 0
             ? NEAP_OK
             : neap__error(NEAP_ERR_STATE, "process %d: %s", (int)pid, strerror(errno));
}

void neap_sleep(double seconds) {
  if (seconds > 0 && seconds <= 1e6) {
    double whole = floor(seconds);
    struct timespec span = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
    nanosleep(&span, NULL);
  }
}
