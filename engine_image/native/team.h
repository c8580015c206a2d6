// Threads that go through a call's phases together. A phase is some number of items; each thread takes a few at a time,
// and the phase is over when all items are done, not when all threads have come: a thread whose processor is lent to
// somebody else for a while is waited for only where it holds items, and skips what was done without it.
#pragma once
#include <stdint.h>

namespace tg {

constexpr int64_t kLine = 64; // bytes of a cache line

class Team;

// One thread's way through one call. Every thread of the team comes through the same phases in the same order.
class Worker {
public:
  Worker(Team *team, uint32_t phase) : team_(team), phase_(phase) {}

  Team *team() const { return team_; }

  // The next items of this phase, at most `most`: [*begin, *end). False where none is left.
  bool take(int64_t total, int64_t most, int64_t *begin, int64_t *end);

  // After the last take: wait until all `total` items are done, by whomever.
  void finish(int64_t total);

private:
  Team *team_;
  uint32_t phase_;
  int64_t taken_ = 0; // items of this phase that this thread has done
};

class Team {
public:
  static Team *make(int threads);
  static void destroy(Team *team);

  int size() const { return size_; }

  // Run `work` on as many threads as come; back when all its phases are done. `context` may die then.
  void run(void (*work)(void *context, Worker &worker), void *context);

  // Memory for a call's intermediate results, kept for the next call; null where there is none. Aligned to lines.
  uint8_t *scratch(int64_t bytes);

  int isa = 0;

private:
  friend class Worker;

  Team() = default;
  ~Team();
  static void *enter(void *team);
  void follow();
  void wait_while(const uint32_t *word, uint32_t value);
  void wake(const uint32_t *word);
  const uint32_t *phase_word() const { return reinterpret_cast<const uint32_t *>(&state_) + 1; }

  alignas(kLine) uint64_t state_ = 0;   // the phase in the upper half, its next item in the lower
  alignas(kLine) int64_t done_ = 0;     // items of the phase
  alignas(kLine) uint32_t call_ = 0;    // odd while a call is open
  alignas(kLine) uint32_t inside_ = 0;  // followers in the call's work
  alignas(kLine) uint32_t sleepers_ = 0;
  alignas(kLine) void (*work_)(void *, Worker &) = nullptr;
  void *context_ = nullptr;
  uint32_t first_phase_ = 0;
  bool ending_ = false;
  int size_ = 1;
  uint8_t *scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  unsigned long threads_[256] = {};
};

} // namespace tg
