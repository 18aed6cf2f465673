#include "accesses.h"

#include <map>
#include <vector>

#include "findings.h"

namespace cuda_double {
namespace {

struct Access {
  Extent extent;
  bool is_write;
  Operation by;
};

struct Block {
  size_t bytes;
  int stream;  // on which it was allocated, and will be used again
  std::vector<Access> accesses;
};

// Of a block that was given back: an access on another stream, which had not
// ended by then.
struct LeftOpen {
  Access access;
  int stream;  // the block's
  std::string finding;
};

std::vector<LeftOpen>& left_open() {
  static auto* all = new std::vector<LeftOpen>;
  return *all;
}

// The block that this thread is giving back, until an event is recorded.
thread_local const void* the_given_back = nullptr;

// A block of which many ranges are used apart forgets the oldest ones.
constexpr size_t most_accesses = 512;

std::map<const char*, Block>& blocks() {
  static auto* all = new std::map<const char*, Block>;
  return *all;
}

Block* block_that_holds(const char* address) {
  auto after = blocks().upper_bound(address);
  if (after == blocks().begin()) return nullptr;
  auto& [begin, block] = *std::prev(after);
  return address < begin + block.bytes ? &block : nullptr;
}

bool is_before(const Access& earlier, int stream) {
  return earlier.by.stream == stream ||
         clock_of(stream).knows(earlier.by.stream, earlier.by.tick);
}

bool has_ended(const Access& access, int for_stream) {
  return is_before(access, for_stream) ||
         clock_of_host().knows(access.by.stream, access.by.tick);
}

std::string told(const Access& access) {
  return std::string(access.is_write ? "write" : "read") + " by " +
         access.by.name + " on " + name_of(access.by.stream) + " at " +
         describe(access.by.place);
}

// After this access, does anyone still need to be compared with that one?
bool makes_needless(const Access& later, const Access& earlier) {
  if (!covers(later.extent, earlier.extent)) return false;
  if (!is_before(earlier, later.by.stream)) return false;
  return later.is_write ||
         (!earlier.is_write && later.by.stream == earlier.by.stream);
}

void add(Block& block, Access access) {
  std::vector<Access> kept;
  for (auto& earlier : block.accesses) {
    bool needs_order = earlier.is_write || access.is_write;
    if (needs_order && !is_before(earlier, access.by.stream) &&
        overlap(earlier.extent, access.extent))
      tell("race: " + told(access) + "; nothing orders it after the " +
           told(earlier));
    if (!makes_needless(access, earlier)) kept.push_back(std::move(earlier));
  }
  if (kept.size() >= most_accesses)
    kept.erase(kept.begin(), kept.begin() + most_accesses / 2);
  kept.push_back(std::move(access));
  block.accesses.swap(kept);
}

void touch(const Operation& by, const Extent& extent, bool is_write) {
  if (extent.begin == extent.end) return;
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  if (Block* block = block_that_holds(extent.begin))
    add(*block, {extent, is_write, by});
}

// This stream goes on with memory: by now it has to come after all that was
// left open.
void close_what_was_left_open(int stream) {
  std::erase_if(left_open(), [stream](const LeftOpen& left) {
    if (left.stream != stream) return false;
    if (!has_ended(left.access, stream)) tell(left.finding);
    return true;
  });
}

}  // namespace

void tell_what_is_left_open() {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  for (const LeftOpen& left : left_open())
    if (!has_ended(left.access, left.stream)) tell(left.finding);
  left_open().clear();
}

void block_begins(const void* begin, size_t bytes, cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  close_what_was_left_open(stream->number);
  blocks()[static_cast<const char*>(begin)] = {bytes, stream->number, {}};
}

void block_is_given_back(const void* begin) { the_given_back = begin; }
void event_is_recorded() { the_given_back = nullptr; }

void block_ends(const void* begin) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  bool was_asked_for = the_given_back != begin;
  the_given_back = nullptr;
  auto found = blocks().find(static_cast<const char*>(begin));
  if (found == blocks().end() || python_is_going()) return;
  const Block& block = found->second;
  for (const Access& access : block.accesses) {
    const auto& [name, stream, tick, at] = access.by;
    bool ended = has_ended(access, block.stream) ||
                 (was_asked_for && clock_of_allocators().knows(stream, tick));
    if (ended) continue;
    std::string finding =
        "freed too early (record_stream, or a wait): memory of " +
        name_of(block.stream) + ", given back not long after " +
        describe(last_here()) + "; nothing orders its next use after the " +
        told(access);
    left_open().push_back({access, block.stream, finding});
  }
  blocks().erase(found);
}

void reads(const Operation& operation, const Extent& extent) {
  touch(operation, extent, false);
}

void writes(const Operation& operation, const Extent& extent) {
  touch(operation, extent, true);
}

void reads(const Operation& operation, const void* begin, size_t bytes) {
  reads(operation, whole(begin, bytes));
}

void writes(const Operation& operation, const void* begin, size_t bytes) {
  writes(operation, whole(begin, bytes));
}

Operation begin_operation(
    const std::string& name, cudaStream_t stream, const Place& place) {
  std::lock_guard<std::recursive_mutex> guard(the_lock());
  int number = resolve(stream)->number;
  close_what_was_left_open(number);
  return {name, number, issue(number), place};
}

}  // namespace cuda_double
