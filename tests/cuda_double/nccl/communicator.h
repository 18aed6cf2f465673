// A communicator: ranks that exchange messages, one after the other.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nccl.h>

#include "mailbox.h"

struct ncclComm {
  cuda_double::Mailbox mailbox;
  std::string name;  // in the mailbox; that of a part begins with the whole's
  int rank;
  int size;
  int device;
  std::vector<int> processes;       // by rank
  long num_collectives = 0;         // that this rank has posted to
  long num_read = 0;                // of these, it has read this many
  long num_removed = 0;             // and has taken back this many messages
  std::map<int, long> num_sent;     // by peer
  std::map<int, long> num_received;
  std::vector<double> factors;      // of ncclRedOpCreatePreMulSum
  std::atomic<bool> is_aborted = false;
};

namespace cuda_double {

// What goes wrong in a communicator, with NCCL's number for it.
struct NcclError : std::runtime_error {
  NcclError(ncclResult_t result, const std::string& what)
      : std::runtime_error(what), result(result) {}
  ncclResult_t result;
};

// Run, and give NCCL's number; the text of an error is kept for
// ncclGetLastError, and told on the standard error.
ncclResult_t guarded(const std::function<void()>& body);

// Wait for a message of a rank; if it does not come, tell whose it is.
Message wait_for(ncclComm* comm, int from, const std::string& name);

// One exchange in which every rank gives a message and gets all of them. It
// has two halves, so that one thread can be several ranks: all of them post
// before any of them collects.
class Exchange {
 public:
  Exchange(ncclComm* comm, Message mine);
  std::vector<Message> collect();

 private:
  std::string name_of(long number, int rank) const;
  ncclComm* comm_;
  long number_;
  std::string label_;
};

}  // namespace cuda_double
