#include "host_memory.h"

#include <csignal>
#include <cstdint>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "findings.h"

namespace cuda_double {
namespace {

struct Guard {
  const char* begin;
  const char* end;
  Way way;
  Operation copy;
};

std::vector<Guard>& guards() {
  static auto* all = new std::vector<Guard>;
  return *all;
}

bool has_ended(const Guard& guard) {
  return clock_of_host().knows(guard.copy.stream, guard.copy.tick);
}

// The whole pages that hold a guarded range.
void protect(const Guard& guard, int protection) {
  auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(guard.begin) / page * page;
  auto end = (reinterpret_cast<uintptr_t>(guard.end) + page - 1) / page * page;
  mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

constexpr int open_to_all = PROT_READ | PROT_WRITE;

int protection_of(Way way) {
  return way == Way::to_host ? PROT_NONE : PROT_READ;
}

void protect_all() {
  for (const auto& guard : guards())
    protect(guard, protection_of(guard.way));
}

// Take away the guards that a test picks. Others may share their pages, and
// are put up again.
template <typename Test>
void lift(Test test) {
  std::vector<Guard> kept;
  bool lifted = false;
  for (auto& guard : guards()) {
    if (!test(guard)) {
      kept.push_back(guard);
      continue;
    }
    protect(guard, open_to_all);
    lifted = true;
  }
  guards().swap(kept);
  if (lifted) protect_all();
}

struct sigaction handler_before;

bool shares_a_page(const Guard& guard, const char* address) {
  auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto of = [page](const char* x) {
    return reinterpret_cast<uintptr_t>(x) / page;
  };
  return of(guard.begin) <= of(address) && of(address) <= of(guard.end - 1);
}

void tell_of(const Guard& guard, const char* address, const Place& place) {
  if (has_ended(guard) || address < guard.begin || address >= guard.end)
    return;
  bool to_host = guard.way == Way::to_host;
  tell(
      std::string("race: the host ") + (to_host ? "uses" : "writes") +
      " pinned memory at " + describe(place) +
      "; it has not waited for the " + guard.copy.name + " on " +
      name_of(guard.copy.stream) + " at " + describe(guard.copy.place));
}

// The program has touched a protected page. It stands in its own code, which
// holds none of our locks, so that we may do here what is forbidden in a
// handler that interrupts at any point.
void on_access(int, siginfo_t* info, void*) {
  auto* address = static_cast<const char*>(info->si_addr);
  Place place;
  {
    std::lock_guard<std::recursive_mutex> lock(the_lock());
    bool is_ours = false;
    for (const auto& guard : guards())
      is_ours |= shares_a_page(guard, address);
    if (!is_ours) {  // somebody else's fault: it happens again, without us
      sigaction(SIGSEGV, &handler_before, nullptr);
      return;
    }
  }
  place = here();
  std::lock_guard<std::recursive_mutex> lock(the_lock());
  for (const auto& guard : guards())
    if (shares_a_page(guard, address)) tell_of(guard, address, place);
  lift([&](const Guard& guard) { return shares_a_page(guard, address); });
}

// Others install handlers, too; ours has to be the last.
void install_handler() {
  struct sigaction now;
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_access) return;
  handler_before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = on_access;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace

void guard_pinned(
    const void* begin, size_t bytes, Way way, const Operation& copy) {
  std::lock_guard<std::recursive_mutex> lock(the_lock());
  install_handler();
  auto* first = static_cast<const char*>(begin);
  guards().push_back({first, first + bytes, way, copy});
  protect(guards().back(), protection_of(way));
}

void lift_guards_of_ended_copies() {
  std::lock_guard<std::recursive_mutex> lock(the_lock());
  lift(has_ended);
}

void lift_guards(const void* given, size_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(the_lock());
  auto* begin = static_cast<const char*>(given);
  lift([&](const Guard& guard) {
    return guard.begin < begin + bytes && begin < guard.end;
  });
}

OwnAccess::OwnAccess() : lock_(the_lock()) {
  for (const auto& guard : guards()) protect(guard, open_to_all);
}

OwnAccess::~OwnAccess() { protect_all(); }

}  // namespace cuda_double
