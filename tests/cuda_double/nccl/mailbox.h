// Messages between ranks: files in a folder that all of them see.
//
// A message has a name that both sides can work out, so nobody has to be
// asked. It appears whole, or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cuda_double {

struct Message {
  std::string label;  // what the sender believes to take part in
  std::vector<char> bytes;
  long num_read = 0;  // how many collectives the sender had read by then
};

class Mailbox {
 public:
  explicit Mailbox(std::string folder) : folder_(std::move(folder)) {}
  // A new folder, after those of processes that have ended are removed.
  static Mailbox make();

  const std::string& folder() const { return folder_; }
  void post(const std::string& name, const Message& message) const;
  std::optional<Message> find(const std::string& name) const;
  void remove(const std::string& name) const;
  // This process uses the folder, until it ends.
  void sign() const;

 private:
  std::string folder_;
};

}  // namespace cuda_double
