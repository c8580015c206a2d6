#include "team.h"

#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <new>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tg {
namespace {

// About 30 us: longer than any phase is uneven by on idle processors, shorter than a time slice where they are shared.
constexpr int kSpins = 1000;

uint32_t phase_of(uint64_t state) { return (uint32_t)(state >> 32); }

} // namespace

bool Worker::take(int64_t total, int64_t most, int64_t *begin, int64_t *end) {
  uint64_t state = __atomic_load_n(&team_->state_, __ATOMIC_ACQUIRE);
  for (;;) {
    const int64_t next = (int64_t)(state & 0xffffffff);
    if (phase_of(state) != phase_ || next >= total) return false;
    const int64_t count = next + most < total ? most : total - next;
    if (__atomic_compare_exchange_n(&team_->state_, &state, state + (uint64_t)count, true, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      *begin = next;
      *end = next + count;
      taken_ += count;
      return true;
    }
  }
}

void Worker::finish(int64_t total) {
  const uint32_t phase = phase_++;
  const int64_t mine = taken_;
  taken_ = 0;
  bool last = mine > 0 && __atomic_add_fetch(&team_->done_, mine, __ATOMIC_ACQ_REL) == total;
  if (total == 0) { // nobody does the last item: whoever comes first ends the phase
    uint64_t state = (uint64_t)phase << 32;
    __atomic_compare_exchange_n(&team_->state_, &state, (uint64_t)(phase + 1) << 32, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
    return;
  }
  if (last) {
    __atomic_store_n(&team_->done_, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&team_->state_, (uint64_t)(phase + 1) << 32, __ATOMIC_SEQ_CST);
    team_->wake(team_->phase_word());
    return;
  }
  team_->wait_while(team_->phase_word(), phase);
}

Team *Team::make(int threads) {
  if (threads < 1 || threads > 256) return nullptr;
  void *place = nullptr;
  if (posix_memalign(&place, kLine, sizeof(Team))) return nullptr;
  Team *team = new (place) Team();
  for (int thread = 1; thread < threads; ++thread) {
    if (pthread_create(&team->threads_[thread], nullptr, enter, team)) break;
    team->size_ = thread + 1;
  }
  return team;
}

void Team::destroy(Team *team) {
  team->~Team();
  free(team);
}

Team::~Team() {
  __atomic_store_n(&ending_, true, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&call_, 2, __ATOMIC_SEQ_CST);
  wake(&call_);
  for (int thread = 1; thread < size_; ++thread) pthread_join(threads_[thread], nullptr);
  free(scratch_);
}

uint8_t *Team::scratch(int64_t bytes) {
  if (bytes > scratch_bytes_) {
    free(scratch_);
    void *place = nullptr;
    scratch_bytes_ = posix_memalign(&place, kLine, (size_t)bytes) ? 0 : bytes;
    scratch_ = scratch_bytes_ ? static_cast<uint8_t *>(place) : nullptr;
  }
  return scratch_;
}

void Team::run(void (*work)(void *, Worker &), void *context) {
  first_phase_ = phase_of(state_);
  work_ = work;
  context_ = context;
  if (size_ > 1) {
    __atomic_fetch_add(&call_, 1, __ATOMIC_SEQ_CST);
    wake(&call_);
  }
  Worker worker(this, first_phase_);
  work(context, worker);
  if (size_ == 1) return;
  __atomic_fetch_add(&call_, 1, __ATOMIC_SEQ_CST); // closed: who has not come by now does not come in any more
  for (uint32_t inside; (inside = __atomic_load_n(&inside_, __ATOMIC_SEQ_CST));) wait_while(&inside_, inside);
}

void *Team::enter(void *team) {
  static_cast<Team *>(team)->follow();
  return nullptr;
}

void Team::follow() {
  for (uint32_t seen = 0;;) {
    wait_while(&call_, seen);
    if (__atomic_load_n(&ending_, __ATOMIC_SEQ_CST)) return;
    seen = __atomic_load_n(&call_, __ATOMIC_SEQ_CST);
    if (seen % 2 == 0) continue;
    __atomic_fetch_add(&inside_, 1, __ATOMIC_SEQ_CST);
    // Counted first and looked at again: the caller either waits for this thread or has closed the call before.
    if (__atomic_load_n(&call_, __ATOMIC_SEQ_CST) == seen) {
      Worker worker(this, first_phase_);
      work_(context_, worker);
    }
    __atomic_fetch_sub(&inside_, 1, __ATOMIC_SEQ_CST);
    wake(&inside_);
  }
}

void Team::wait_while(const uint32_t *word, uint32_t value) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return;
    _mm_pause();
  }
  // Counted before the kernel looks at the word again: who changes it either is seen there or sees this sleeper.
  __atomic_fetch_add(&sleepers_, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
  }
  __atomic_fetch_sub(&sleepers_, 1, __ATOMIC_SEQ_CST);
}

void Team::wake(const uint32_t *word) {
  if (__atomic_load_n(&sleepers_, __ATOMIC_SEQ_CST)) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

} // namespace tg
