# neap: one Makefile, GNU make, no configure. `make help` prints these lines:
#: make             build/libneap.so and build/neap/cdef.lua
#: make train       install what is missing, build, train the small model (ARGS="--steps 100")
#: make test        install what is missing, build, run the specs (SPEC=spec/x_spec.lua ARGS=...)
#: make test-long   the same under sanitizers, and longer
#: make valgrind    a short training run under valgrind
#: make bench       the benchmarks in spec/bench
#: make lint        formatting and static checks of C and Lua
#: make setup       install what train and test need (apt-get; sudo where needed)
#: make install     to PREFIX (/usr/local), below DESTDIR; make uninstall
#: make clean       removes build/
#: make help        this
#: Settings: GEMM=onednn|openblas  PORTABLE=1  SAN=1 (LEAKS=1)  V=1  SETUP=0  TEST_THREADS=1
#:           CC=  CFLAGS=  CPPFLAGS=  LDFLAGS=  PREFIX=  DESTDIR=

# ---- settings --------------------------------------------------------------------------------------

CC ?= cc
LUAJIT = luajit
BUSTED = busted
PREFIX = /usr/local
DESTDIR =
# matrix products: onednn (fastest) or openblas; openblas is taken where oneDNN's header is missing
GEMM = onednn
# 1: code for every x86-64-v2 processor (any processor elsewhere) instead of for this one
PORTABLE =
# 1: AddressSanitizer and UndefinedBehaviorSanitizer, in build/san
SAN =
# 1: with SAN=1, an error of what the library leaks too; only for specs that start no other programs
# (those leak as they like): SPEC=spec/op
LEAKS =
# 1: whole command lines
V =
# 0: install no packages; what is missing is then an error of the build
SETUP = 1
# of `make test`: files or folders, further options of busted, threads of the kernels
SPEC = spec
ARGS =
TEST_THREADS = 1
# user flags are added to the project's, never replace them
CFLAGS =
CPPFLAGS =
LDFLAGS =

# ---- set-up: before anything is looked for ---------------------------------------------------------

GOALS := $(or $(MAKECMDGOALS),all)
ifneq ($(filter test-long,$(GOALS)),)
SAN := 1
endif
SETUP_train := train setup
SETUP_test := test test-long bench
SETUP_lint := lint
ifneq ($(SETUP),0)
# `make -n` only says what it would do
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS))),)
SETS := $(foreach s,train test lint,$(if $(filter $(SETUP_$(s)),$(GOALS)),$(s)))
SETUP_ERRORS := $(foreach s,$(SETS),$(shell .ci/setup $(s) || echo failed))
ifneq ($(strip $(SETUP_ERRORS)),)
$(error set-up failed)
endif
endif
endif

# ---- what is here ----------------------------------------------------------------------------------

BUILD := build
OUT := $(BUILD)$(if $(SAN),/san)
OBJ := $(OUT)/obj
LIB := $(OUT)/libneap.so
CDEF := $(BUILD)/neap/cdef.lua

BACKENDS := cpu null
AREAS := core checkpoint chunk io $(BACKENDS)
SOURCES := $(sort $(foreach a,$(AREAS),$(wildcard src/$(a)/*.c)))
OBJECTS := $(SOURCES:src/%.c=$(OBJ)/%.o)
LUA_FILES := $(shell find lua -name '*.lua' 2>/dev/null | sort)
EXAMPLES := $(shell find examples -name '*.lua' 2>/dev/null | sort)
HEADERS := $(shell find src -name '*.h' | sort)

has_header = $(shell echo '\#include <$(1)>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo 1)

ifneq ($(filter-out help clean uninstall lint,$(GOALS)),)
NOTES :=
ifeq ($(filter onednn openblas,$(GEMM)),)
$(error GEMM=$(GEMM) is not known; expected onednn or openblas)
endif
ifeq ($(shell command -v $(firstword $(CC))),)
$(error no C compiler '$(firstword $(CC))' found; run 'make setup' or name one with CC=)
endif
USED_GEMM := $(GEMM)
ifeq ($(GEMM),onednn)
ifeq ($(call has_header,dnnl.h),)
USED_GEMM := openblas
NOTES += (oneDNN's dnnl.h is not here, so products run on OpenBLAS)
endif
endif
ifeq ($(call has_header,xxhash.h),)
$(error xxhash.h is not here; run 'make setup' (package libxxhash-dev))
endif
ifeq ($(USED_GEMM),openblas)
GEMM_CFLAGS := -DNEAP_GEMM_OPENBLAS $(shell pkg-config --cflags openblas 2>/dev/null)
GEMM_LIBS := $(shell pkg-config --libs openblas 2>/dev/null)
ifeq ($(GEMM_LIBS),)
$(error neither oneDNN nor OpenBLAS is here for matrix products; run 'make setup' (packages libdnnl-dev, libopenblas-dev))
endif
endif
# library and declarations are told apart from those of another header by this
HEADER_SUM := $(firstword $(shell cksum <src/neap.h))
MACHINE := $(shell $(CC) -dumpmachine)
ifeq ($(PORTABLE),)
ARCH := -march=native
CPU := $(shell $(CC) -march=native -Q --help=target 2>/dev/null | sed -n 's/^[[:space:]]*-march=[[:space:]]*\([^ ]*\)[[:space:]]*$$/\1/p' | head -n 1)
else
ARCH := $(if $(filter x86_64%,$(MACHINE)),-march=x86-64-v2)
CPU := $(if $(ARCH),x86-64-v2,any $(MACHINE))
endif
endif

# ---- flags -----------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
  -Wdouble-promotion -Wvla
comma := ,
SAN_FLAGS := $(if $(SAN),-g -DNEAP_GUARD -fsanitize=address$(comma)undefined \
  -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
NEAP_CFLAGS = -std=c11 $(WARNINGS) -fvisibility=hidden -O3 $(ARCH) -fPIC -fopenmp -pthread \
  $(SAN_FLAGS) $(CFLAGS)
NEAP_CPPFLAGS = -D_GNU_SOURCE -DNEAP_HEADER_SUM=$(HEADER_SUM) -Isrc $(GEMM_CFLAGS) $(CPPFLAGS)
# a symbol that nobody defines is an error of the link, not of the first call; and closing a Lua
# state must not unmap the code that OpenMP's idle threads still run
NEAP_LDFLAGS = -shared -Wl$(comma)-z$(comma)nodelete $(if $(SAN),,-Wl$(comma)-z$(comma)defs) \
  $(SAN_FLAGS) $(LDFLAGS)
NEAP_LIBS = $(GEMM_LIBS) -lxxhash -lm -ldl -fopenmp -pthread

Q := $(if $(V),,@)

# ---- build -----------------------------------------------------------------------------------------

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all train setup test test-long valgrind bench lint install uninstall clean help FORCE

all: $(LIB) $(CDEF)

# a stamp changes only when its text does, and what depends on it is rebuilt then
COMPILE := $(CC) $(NEAP_CPPFLAGS) $(NEAP_CFLAGS)
LINK := $(CC) $(NEAP_LDFLAGS) $(OBJECTS) $(NEAP_LIBS)
write_stamp = printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || \
  { mkdir -p $(@D) && printf '%s\n' '$(subst ','\'',$(1))' >$@ && $(2); }

$(OBJ)/compile.stamp: FORCE
	@$(call write_stamp,$(COMPILE) ($(CPU)),echo "neap: products $(USED_GEMM); processor $(CPU);$(if \
	$(SAN), sanitizers;) backends $(BACKENDS); cuda plug-in left out (no sources here) $(NOTES)")

$(OBJ)/link.stamp: FORCE
	@$(call write_stamp,$(LINK),true)

$(OBJ)/%.o: src/%.c $(OBJ)/compile.stamp
	@mkdir -p $(@D)
	@$(if $(V),,echo "CC $<")
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@

# by a rename, so that whoever looks finds the old library or the new one, never half of one
$(LIB): $(OBJECTS) $(OBJ)/link.stamp
	@$(if $(V),,echo "LD $@")
	$(Q)$(LINK) -o $@.tmp && mv $@.tmp $@

$(CDEF): src/neap.h
	@mkdir -p $(@D)
	@$(if $(V),,echo "CDEF $@")
	$(Q)$(CC) -E -P -DNEAP_CDEF $< -o $@.i
	$(Q){ echo "return { abi = $$(sed -n 's/.*NEAP_ABI = \([0-9]*\).*/\1/p' $<), sum = $(HEADER_SUM), \
	  text = [==["; \
	  cat $@.i; echo "]==] }"; } >$@.tmp && mv $@.tmp $@ && rm $@.i

-include $(OBJECTS:.o=.d)

# ---- run -------------------------------------------------------------------------------------------

setup:
	@.ci/setup test

train: all
	@$(LUAJIT) examples/train.lua $(ARGS)

# the specs find a sanitized library by NEAP_LIBRARY; its run-time has to be the process's first
LIBASAN = $$(readlink -f "$$($(CC) -print-file-name=libasan.so)")
SAN_ENV = $(if $(SAN),LD_PRELOAD="$(LIBASAN)" ASAN_OPTIONS=detect_leaks=$(if $(LEAKS),1,0):abort_on_error=0 \
  UBSAN_OPTIONS=print_stacktrace=1) NEAP_LIBRARY=$(abspath $(LIB))
RUN_SPECS = OMP_NUM_THREADS=$(TEST_THREADS) OPENBLAS_NUM_THREADS=$(TEST_THREADS) $(SAN_ENV) \
  $(BUSTED) --lua=$(LUAJIT)

test: all
	@$(RUN_SPECS) $(ARGS) $(SPEC)

# the long checks: the same specs under sanitizers, told by NEAP_LONG to take their time
test-long: all
	@NEAP_LONG=1 $(RUN_SPECS) $(ARGS) $(SPEC)

# memory errors and leaks of a short training run (apt install valgrind). Where valgrind does not know
# this processor's instructions: make PORTABLE=1 valgrind
valgrind: all
	@command -v valgrind >/dev/null || { echo "neap: valgrind is missing; apt install valgrind" >&2; exit 1; }
	NEAP_LIBRARY=$(abspath $(LIB)) valgrind --quiet --error-exitcode=9 --leak-check=full \
	  --show-leak-kinds=definite --errors-for-leak-kinds=definite $(LUAJIT) -joff examples/train.lua --steps 2 --threads 1 \
	  --set n_layer=2 --set width=32 --set context=16 --set final_eval_batches=1 --out $(BUILD)/valgrind-run$$$$

BENCHES = $(sort $(wildcard spec/bench/*.lua))
bench: all
	@$(if $(BENCHES),,echo "no benchmarks in spec/bench yet";) for file in $(BENCHES); do \
	  echo "== $$file"; \
	  LUA_PATH="lua/?.lua;lua/?/init.lua;build/?.lua;spec/?.lua;;" $(LUAJIT) $$file $(ARGS) || exit 1; \
	done

# loops over dims and lanes confuse cppcheck's flow; gcc's own warnings watch over those
CPPCHECK_MISTAKES = --suppress=missingIncludeSystem --suppress=funcArgOrderDifferent \
  --suppress='uninitvar:src/cpu/*' --suppress='invalidFunctionArg:src/cpu/*'

lint:
	clang-format --dry-run -Werror $(SOURCES) $(HEADERS)
	cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability \
	  --inline-suppr $(CPPCHECK_MISTAKES) -Isrc $(SOURCES)
	luacheck --quiet lua spec examples .ci .busted

# ---- install ---------------------------------------------------------------------------------------

LUA_DIR = $(DESTDIR)$(PREFIX)/share/lua/5.1
SHARE_DIR = $(DESTDIR)$(PREFIX)/share/neap

install: all
	install -D -m 755 $(LIB) $(DESTDIR)$(PREFIX)/lib/libneap.so
	install -D -m 644 src/neap.h $(DESTDIR)$(PREFIX)/include/neap.h
	install -D -m 644 $(CDEF) $(LUA_DIR)/neap/cdef.lua
	for file in $(LUA_FILES:lua/%=%); do install -D -m 644 lua/$$file $(LUA_DIR)/$$file || exit 1; done
	for file in $(EXAMPLES); do install -D -m 644 $$file $(SHARE_DIR)/$$file || exit 1; done

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/lib/libneap.so $(DESTDIR)$(PREFIX)/include/neap.h
	rm -rf $(LUA_DIR)/neap $(SHARE_DIR)

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile
