#include "communicator.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include <unistd.h>

#include "../runtime/devices.h"
#include "../runtime/findings.h"
#include "reductions.h"

namespace cuda_double {
namespace {

std::string& last_error() {
  static auto* text = new std::string;
  return *text;
}

double most_seconds() {
  const char* value = std::getenv("CUDA_DOUBLE_NCCL_SECONDS");
  return value != nullptr ? std::atof(value) : 120;
}

bool is_running(int pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

std::string told(const ncclComm* comm, int from, const std::string& name) {
  return "rank " + std::to_string(comm->rank) + " of " +
         std::to_string(comm->size) + " waits for rank " +
         std::to_string(from) + " (message " + name + ")";
}

// What a rank says of itself when a communicator begins.
struct Introduction {
  int process;
  int device;  // its number on the machine
};

Message packed(const std::string& label, const void* from, size_t bytes) {
  auto* begin = static_cast<const char*>(from);
  return {label, std::vector<char>(begin, begin + bytes)};
}

template <typename T>
T unpacked(const Message& message) {
  T value;
  std::memcpy(&value, message.bytes.data(), sizeof value);
  return value;
}

// As NCCL does: two ranks may not use one GPU.
void introduce(ncclComm* comm) {
  comm->mailbox.sign();
  Introduction mine = {getpid(), number_on_machine(comm->device)};
  std::map<int, int> rank_on;
  Exchange exchange(comm, packed("introduction", &mine, sizeof mine));
  auto answers = exchange.collect();
  for (int rank = 0; rank < comm->size; ++rank) {
    auto theirs = unpacked<Introduction>(answers[rank]);
    comm->processes.push_back(theirs.process);
    auto [earlier, is_first] = rank_on.emplace(theirs.device, rank);
    if (!is_first)
      throw NcclError(
          ncclInvalidUsage,
          "Duplicate GPU detected : rank " + std::to_string(rank) +
              " and rank " + std::to_string(earlier->second) +
              " both on CUDA device " + std::to_string(theirs.device));
  }
}

ncclComm* new_communicator(
    const std::string& folder, const std::string& name, int rank, int size,
    int device) {
  return new ncclComm{Mailbox(folder), name, rank, size, device};
}

}  // namespace

ncclResult_t guarded(const std::function<void()>& body) {
  ncclResult_t result = ncclInternalError;
  try {
    body();
    return ncclSuccess;
  } catch (const NcclError& error) {
    last_error() = error.what();
    result = error.result;
  } catch (const std::exception& error) {
    last_error() = error.what();
  }
  tell("nccl: " + last_error());
  return result;
}

Message wait_for(ncclComm* comm, int from, const std::string& name) {
  using namespace std::chrono;
  auto begin = steady_clock::now();
  for (microseconds pause{20};; pause = std::min(pause * 2, 2000us)) {
    if (auto message = comm->mailbox.find(name)) return *message;
    if (comm->is_aborted)
      throw NcclError(ncclInternalError, "the communicator was aborted");
    bool is_known = from < static_cast<int>(comm->processes.size());
    if (is_known && !is_running(comm->processes[from])) {
      // It may have posted its message and ended.
      if (auto message = comm->mailbox.find(name)) return *message;
      throw NcclError(
          ncclRemoteError, told(comm, from, name) + ", which has ended");
    }
    duration<double> waited = steady_clock::now() - begin;
    if (waited.count() > most_seconds())
      throw NcclError(
          ncclRemoteError,
          told(comm, from, name) + " in vain since " +
              std::to_string(static_cast<int>(waited.count())) + " s");
    std::this_thread::sleep_for(pause);
  }
}

std::string Exchange::name_of(long number, int rank) const {
  return comm_->name + ".collective" + std::to_string(number) + ".of" +
         std::to_string(rank);
}

Exchange::Exchange(ncclComm* comm, Message mine)
    : comm_(comm), number_(comm->num_collectives++), label_(mine.label) {
  mine.num_read = comm->num_read;
  comm_->mailbox.post(name_of(number_, comm_->rank), mine);
}

std::vector<Message> Exchange::collect() {
  std::vector<Message> all;
  long read_by_all = number_;
  for (int rank = 0; rank < comm_->size; ++rank) {
    all.push_back(wait_for(comm_, rank, name_of(number_, rank)));
    if (all.back().label != label_)
      throw NcclError(
          ncclInvalidUsage,
          "ranks differ in call " + std::to_string(number_) +
              " of their communicator: rank " + std::to_string(comm_->rank) +
              " has " + label_ + ", rank " + std::to_string(rank) + " has " +
              all.back().label);
    read_by_all = std::min(read_by_all, all.back().num_read);
  }
  comm_->num_read = number_ + 1;
  for (; comm_->num_removed < read_by_all; ++comm_->num_removed)
    comm_->mailbox.remove(name_of(comm_->num_removed, comm_->rank));
  return all;
}

}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetLastError(ncclComm_t) { return last_error().c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&] {
    std::string folder = Mailbox::make().folder();
    if (folder.size() >= sizeof id->internal)
      throw NcclError(ncclSystemError, "a path too long: " + folder);
    std::memset(id, 0, sizeof *id);
    std::memcpy(id->internal, folder.data(), folder.size());
  });
}

ncclResult_t ncclCommInitRank(
    ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return guarded([&] {
    *comm = new_communicator(
        id.internal, "world", rank, size, current_device());
    introduce(*comm);
  });
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  return ncclCommInitRank(comm, size, id, rank);
}

ncclResult_t ncclCommInitRankScalable(
    ncclComm_t* comm, int size, int rank, int, ncclUniqueId* ids,
    ncclConfig_t*) {
  return ncclCommInitRank(comm, size, ids[0], rank);
}

// All ranks in one process, as nn.DataParallel and torch.cuda.nccl have them.
ncclResult_t ncclCommInitAll(
    ncclComm_t* comms, int size, const int* devices) {
  return guarded([&] {
    std::set<int> different(devices, devices + size);
    if (static_cast<int>(different.size()) < size)
      throw NcclError(ncclInvalidUsage, "a device is given to two ranks");
    std::string folder = Mailbox::make().folder();
    for (int rank = 0; rank < size; ++rank) {
      comms[rank] =
          new_communicator(folder, "world", rank, size, devices[rank]);
      comms[rank]->processes.assign(size, getpid());
    }
  });
}

// Ranks of one colour are a new communicator, in the order of their keys.
ncclResult_t ncclCommSplit(
    ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  return guarded([&] {
    struct Choice { int color, key; } mine = {color, key};
    std::string name = comm->name + ".part" +
                       std::to_string(comm->num_collectives) + "." +
                       std::to_string(color);
    Exchange exchange(comm, packed("split", &mine, sizeof mine));
    auto answers = exchange.collect();
    std::set<std::pair<int, int>> members;  // key, old rank
    for (int rank = 0; rank < comm->size; ++rank) {
      auto theirs = unpacked<Choice>(answers[rank]);
      if (theirs.color == color) members.insert({theirs.key, rank});
    }
    *part = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return;
    auto me = members.find({key, comm->rank});
    int rank = static_cast<int>(std::distance(members.begin(), me));
    *part = new_communicator(
        comm->mailbox.folder(), name, rank,
        static_cast<int>(members.size()), comm->device);
    for (const auto& [_, old_rank] : members)
      (*part)->processes.push_back(comm->processes[old_rank]);
  });
}

// Its messages stay until all ranks' processes have ended (mailbox.cpp).
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->is_aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  return ncclCommAbort(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(
    const ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
  bool done = cudaMalloc(pointer, size) == cudaSuccess;
  return done ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* pointer) {
  bool done = cudaFree(pointer) == cudaSuccess;
  return done ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclRedOpCreatePreMulSum(
    ncclRedOp_t* op, void* scalar, ncclDataType_t type,
    ncclScalarResidence_t, ncclComm_t comm) {
  return guarded([&] {
    *op = static_cast<ncclRedOp_t>(ncclNumOps + comm->factors.size());
    comm->factors.push_back(number_at(scalar, type));
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  return ncclSuccess;
}

}  // extern "C"
