#include "reductions.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace cuda_double {
namespace {

// Call a function with a value of the type that NCCL's name stands for.
template <typename Function>
auto with_type(ncclDataType_t type, Function function) {
  switch (type) {
    case ncclInt8: return function(int8_t{});
    case ncclUint8: return function(uint8_t{});
    case ncclInt32: return function(int32_t{});
    case ncclUint32: return function(uint32_t{});
    case ncclInt64: return function(int64_t{});
    case ncclUint64: return function(uint64_t{});
    case ncclFloat16: return function(c10::Half{});
    case ncclBfloat16: return function(c10::BFloat16{});
    case ncclFloat32: return function(float{});
    case ncclFloat64: return function(double{});
    default: throw std::runtime_error("not doubled: float8 in NCCL");
  }
}

template <typename T>
T combine(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
    default: return a + b;
  }
}

template <typename T>
T scaled(T x, double factor) {
  return factor == 1 ? x : static_cast<T>(static_cast<double>(x) * factor);
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  if (type == ncclFloat8e4m3 || type == ncclFloat8e5m2) return 1;
  return with_type(type, [](auto zero) { return sizeof zero; });
}

std::string name_of(ncclDataType_t type) {
  static const char* const names[] = {
      "int8",    "uint8",   "int32",   "uint32",   "int64",   "uint64",
      "float16", "float32", "float64", "bfloat16", "float8e4m3",
      "float8e5m2"};
  return names[type];
}

std::string name_of(ncclRedOp_t op) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"};
  return op < ncclNumOps ? names[op] : "scaled sum";
}

void reduce(
    void* to, const std::vector<const void*>& from, size_t count,
    ncclDataType_t type, ncclRedOp_t op, const std::vector<double>& factors) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    auto* result = static_cast<T*>(to);
    for (size_t i = 0; i < count; ++i) {
      T total = scaled(static_cast<const T*>(from[0])[i], factors[0]);
      for (size_t rank = 1; rank < from.size(); ++rank) {
        T x = scaled(static_cast<const T*>(from[rank])[i], factors[rank]);
        total = combine(total, x, op);
      }
      double ranks = static_cast<double>(from.size());
      result[i] = op == ncclAvg ? scaled(total, 1 / ranks) : total;
    }
    return 0;
  });
}

double number_at(const void* address, ncclDataType_t type) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(*static_cast<const T*>(address));
  });
}

}  // namespace cuda_double
