// The calls of NCCL: who gives what, and who gets what.
//
// A call posts what this rank gives, then collects what the others give, and
// works out its own result. Within a group of calls all post before any of
// them collects. The host waits for the other ranks, where NCCL's would not;
// for the check, a call is an operation of its stream like any other.
#include <cstring>
#include <functional>
#include <memory>

#include <nccl.h>

#include "../runtime/accesses.h"
#include "communicator.h"
#include "reductions.h"

using namespace cuda_double;

namespace {

// One call of a group: what is yet to be done.
struct Call {
  std::function<void()> post;
  std::function<void()> collect;
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group;

void run_group() {
  std::vector<Call> calls;
  calls.swap(group);
  for (auto& call : calls) call.post();
  for (auto& call : calls) call.collect();
}

void add(Call call) {
  group.push_back(std::move(call));
  if (group_depth == 0) run_group();
}

// Memory that a call reads or writes.
struct Part {
  void* begin;
  size_t bytes;
};

Part part(const void* begin, size_t count, ncclDataType_t type) {
  return {const_cast<void*>(begin), count * bytes_of(type)};
}

std::string labelled(
    const std::string& name, size_t count, ncclDataType_t type,
    const std::string& more = "") {
  return name + " of " + std::to_string(count) + " x " +
         cuda_double::name_of(type) + (more.empty() ? "" : ", " + more);
}

// Work out the result of a collective from what all ranks have given.
using Finish = std::function<void(const std::vector<Message>&, void* result)>;

// A collective in which this rank gives and gets (0 bytes: nothing).
ncclResult_t collective(
    ncclComm_t comm, cudaStream_t given, const std::string& name,
    const std::string& label, Part gives, Part gets, Finish finish) {
  struct State {
    Operation operation;
    std::unique_ptr<Exchange> exchange;
  };
  return guarded([&] {
    auto state = std::make_shared<State>();
    cudaStream_t stream = resolve(given);
    Place place = here();
    auto post = [=] {
      state->operation = begin_operation("nccl " + name, stream, place);
      reads(state->operation, gives.begin, gives.bytes);
      auto* bytes = static_cast<const char*>(gives.begin);
      Message mine = {label, {bytes, bytes + gives.bytes}};
      state->exchange = std::make_unique<Exchange>(comm, mine);
    };
    auto collect = [=] {
      auto all = state->exchange->collect();
      if (gets.bytes > 0) finish(all, gets.begin);
      writes(state->operation, gets.begin, gets.bytes);
    };
    add({post, collect});
  });
}

// By how much each rank's numbers are multiplied before they are added: the
// factor comes with the communicator, and is the same on all ranks.
std::vector<double> factors(ncclComm_t comm, ncclRedOp_t op) {
  double factor = op < ncclNumOps ? 1 : comm->factors.at(op - ncclNumOps);
  return std::vector<double>(comm->size, factor);
}

std::vector<const void*> addresses(
    const std::vector<Message>& messages, size_t offset = 0) {
  std::vector<const void*> found;
  for (const auto& message : messages)
    found.push_back(message.bytes.data() + offset);
  return found;
}

void copy_bytes(void* to, const Message& from, size_t offset, size_t bytes) {
  std::memcpy(to, from.bytes.data() + offset, bytes);
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  return guarded(run_group);
}

ncclResult_t ncclAllReduce(
    const void* from, void* to, size_t count, ncclDataType_t type,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  std::string label = labelled(
      "all_reduce", count, type, cuda_double::name_of(op));
  return collective(
      comm, stream, "all_reduce", label, part(from, count, type),
      part(to, count, type), [=](auto& all, void* result) {
        reduce(result, addresses(all), count, type, op, factors(comm, op));
      });
}

ncclResult_t ncclReduce(
    const void* from, void* to, size_t count, ncclDataType_t type,
    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  std::string label = labelled(
      "reduce to " + std::to_string(root), count, type,
      cuda_double::name_of(op));
  Part gets = part(to, comm->rank == root ? count : 0, type);
  return collective(
      comm, stream, "reduce", label, part(from, count, type), gets,
      [=](auto& all, void* result) {
        reduce(result, addresses(all), count, type, op, factors(comm, op));
      });
}

ncclResult_t ncclBroadcast(
    const void* from, void* to, size_t count, ncclDataType_t type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  std::string label =
      labelled("broadcast from " + std::to_string(root), count, type);
  Part gives = part(from, comm->rank == root ? count : 0, type);
  Part gets = part(to, count, type);
  return collective(
      comm, stream, "broadcast", label, gives, gets,
      [=](auto& all, void* result) {
        copy_bytes(result, all[root], 0, gets.bytes);
      });
}

ncclResult_t ncclBcast(
    void* buffer, size_t count, ncclDataType_t type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclReduceScatter(
    const void* from, void* to, size_t count, ncclDataType_t type,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  std::string label = labelled(
      "reduce_scatter", count, type, cuda_double::name_of(op));
  Part gets = part(to, count, type);
  size_t offset = comm->rank * gets.bytes;
  return collective(
      comm, stream, "reduce_scatter", label,
      part(from, count * comm->size, type), gets,
      [=](auto& all, void* result) {
        reduce(
            result, addresses(all, offset), count, type, op,
            factors(comm, op));
      });
}

ncclResult_t ncclAllGather(
    const void* from, void* to, size_t count, ncclDataType_t type,
    ncclComm_t comm, cudaStream_t stream) {
  Part gives = part(from, count, type);
  return collective(
      comm, stream, "all_gather", labelled("all_gather", count, type), gives,
      part(to, count * comm->size, type), [=](auto& all, void* result) {
        for (size_t rank = 0; rank < all.size(); ++rank)
          copy_bytes(
              static_cast<char*>(result) + rank * gives.bytes, all[rank], 0,
              gives.bytes);
      });
}

ncclResult_t ncclAlltoAll(
    const void* from, void* to, size_t count, ncclDataType_t type,
    ncclComm_t comm, cudaStream_t stream) {
  size_t bytes = count * bytes_of(type);
  Part gives = part(from, count * comm->size, type);
  Part gets = part(to, count * comm->size, type);
  return collective(
      comm, stream, "all_to_all", labelled("all_to_all", count, type), gives,
      gets, [=](auto& all, void* result) {
        for (size_t rank = 0; rank < all.size(); ++rank)
          copy_bytes(
              static_cast<char*>(result) + rank * bytes, all[rank],
              comm->rank * bytes, bytes);
      });
}

ncclResult_t ncclGather(
    const void* from, void* to, size_t count, ncclDataType_t type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  Part gives = part(from, count, type);
  size_t received = comm->rank == root ? count * comm->size : 0;
  std::string label =
      labelled("gather to " + std::to_string(root), count, type);
  return collective(
      comm, stream, "gather", label, gives, part(to, received, type),
      [=](auto& all, void* result) {
        for (size_t rank = 0; rank < all.size(); ++rank)
          copy_bytes(
              static_cast<char*>(result) + rank * gives.bytes, all[rank], 0,
              gives.bytes);
      });
}

ncclResult_t ncclScatter(
    const void* from, void* to, size_t count, ncclDataType_t type, int root,
    ncclComm_t comm, cudaStream_t stream) {
  size_t sent = comm->rank == root ? count * comm->size : 0;
  Part gets = part(to, count, type);
  std::string label =
      labelled("scatter from " + std::to_string(root), count, type);
  return collective(
      comm, stream, "scatter", label, part(from, sent, type), gets,
      [=](auto& all, void* result) {
        copy_bytes(
            result, all[root], comm->rank * gets.bytes, gets.bytes);
      });
}

// --- from one rank to one other --------------------------------------------

static std::string name_of_message(
    ncclComm_t comm, int from, int to, long number) {
  return comm->name + ".message" + std::to_string(number) + ".from" +
         std::to_string(from) + ".to" + std::to_string(to);
}

ncclResult_t ncclSend(
    const void* from, size_t count, ncclDataType_t type, int peer,
    ncclComm_t comm, cudaStream_t given) {
  return guarded([&] {
    cudaStream_t stream = resolve(given);
    Place place = here();
    Part gives = part(from, count, type);
    auto post = [=] {
      auto operation = begin_operation("nccl send", stream, place);
      reads(operation, gives.begin, gives.bytes);
      auto* bytes = static_cast<const char*>(gives.begin);
      long number = comm->num_sent[peer]++;
      comm->mailbox.post(
          name_of_message(comm, comm->rank, peer, number),
          {labelled("message", count, type), {bytes, bytes + gives.bytes}});
    };
    add({post, [] {}});
  });
}

ncclResult_t ncclRecv(
    void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
    cudaStream_t given) {
  return guarded([&] {
    cudaStream_t stream = resolve(given);
    Place place = here();
    Part gets = part(to, count, type);
    auto collect = [=] {
      auto operation = begin_operation("nccl recv", stream, place);
      long number = comm->num_received[peer]++;
      std::string name = name_of_message(comm, peer, comm->rank, number);
      Message message = wait_for(comm, peer, name);
      comm->mailbox.remove(name);
      std::string expected = labelled("message", count, type);
      if (message.label != expected)
        throw NcclError(
            ncclInvalidUsage, "rank " + std::to_string(comm->rank) +
                                  " receives a " + expected +
                                  ", but rank " + std::to_string(peer) +
                                  " has sent a " + message.label);
      copy_bytes(gets.begin, message, 0, gets.bytes);
      writes(operation, gets.begin, gets.bytes);
    };
    add({[] {}, collect});
  });
}

}  // extern "C"
