#include "extent.h"

#include <algorithm>
#include <utility>

namespace cuda_double {
namespace {

// Bytes that lie one behind another, from begin to end.
using Run = std::pair<const char*, const char*>;

// With more elements than this, gaps are not looked at.
constexpr int64_t most_elements = 1 << 20;

void add_elements(
    const Extent& x, size_t axis, const char* at, std::vector<Run>& runs) {
  if (axis < x.sizes.size()) {
    for (int64_t i = 0; i < x.sizes[axis]; ++i)
      add_elements(x, axis + 1, at + i * x.strides[axis], runs);
    return;
  }
  if (!runs.empty() && runs.back().second == at)
    runs.back().second = at + x.item;
  else
    runs.emplace_back(at, at + x.item);
}

std::vector<Run> runs_of(const Extent& x) {
  int64_t count = 1;
  for (int64_t size : x.sizes) count *= size;
  if (!x.has_gaps() || count > most_elements) return {{x.begin, x.end}};
  std::vector<Run> runs;
  add_elements(x, 0, x.begin, runs);
  std::sort(runs.begin(), runs.end());
  return runs;
}

}  // namespace

Extent whole(const void* begin, size_t bytes) {
  auto* first = static_cast<const char*>(begin);
  return {first, first + bytes, {}, {}, 1};
}

bool overlap(const Extent& a, const Extent& b) {
  if (a.end <= b.begin || b.end <= a.begin) return false;
  if (!a.has_gaps() && !b.has_gaps()) return true;
  auto of_a = runs_of(a), of_b = runs_of(b);
  for (auto i = of_a.begin(), j = of_b.begin();
       i != of_a.end() && j != of_b.end();) {
    if (i->first < j->second && j->first < i->second) return true;
    i->second < j->second ? ++i : ++j;
  }
  return false;
}

bool covers(const Extent& a, const Extent& b) {
  bool spans = a.begin <= b.begin && b.end <= a.end;
  bool same = a.begin == b.begin && a.sizes == b.sizes &&
              a.strides == b.strides && a.item == b.item;
  return a.has_gaps() ? same : spans;
}

}  // namespace cuda_double
