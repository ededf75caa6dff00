/* Ctrl-C and SIGTERM. In compiled Lua code a hook never runs, so the first signal only sets a flag
 * that the step loop polls; the second ends the process at once.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "core/host.h"

static volatile sig_atomic_t pending;
static struct sigaction before_int, before_term;
static int is_watching;

/* a file that is being written beside its final name; removed when the process is ended in between
 */
static char temp_path[4096];

void neap__signal_temp(const char *path) {
  temp_path[0] = '\0'; /* never a mix of two names */
  if (path != NULL && strlen(path) < sizeof temp_path) {
    memcpy(temp_path + 1, path + 1, strlen(path));
    temp_path[0] = path[0];
  }
}

static void on_signal(int number) {
  if (pending != 0) {
    if (temp_path[0] != '\0') {
      unlink(temp_path);
    }
    _exit(128 + number);
  }
  pending = number;
}

int neap_signal_watch(int on) {
  if (on && !is_watching) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    pending = 0;
    if (sigaction(SIGINT, &action, &before_int) != 0 ||
        sigaction(SIGTERM, &action, &before_term) != 0) {
      return neap__error(NEAP_ERR_IO, "cannot watch SIGINT and SIGTERM");
    }
    is_watching = 1;
  } else if (!on && is_watching) {
    sigaction(SIGINT, &before_int, NULL);
    sigaction(SIGTERM, &before_term, NULL);
    is_watching = 0;
  }
  return NEAP_OK;
}

int neap_signal_pending(void) {
  return (int)pending;
}
