#include "mailbox.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>

#include <unistd.h>

namespace cuda_double {
namespace {

namespace fs = std::filesystem;
const std::string prefix = "cuda_double_nccl_";
const std::string signature = "process.";

struct Header {
  uint64_t label_size;
  long num_read;
};

bool is_running(int pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

bool is_in_use(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename();
    if (name.rfind(signature, 0) == 0 &&
        is_running(std::atoi(name.c_str() + signature.size())))
      return true;
  }
  return false;
}

void remove_those_left_behind() {
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator(fs::temp_directory_path(), error)) {
    std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) == 0 && !is_in_use(entry.path()))
      fs::remove_all(entry.path(), error);
  }
}

}  // namespace

Mailbox Mailbox::make() {
  remove_those_left_behind();
  std::random_device random;
  std::string name = prefix + std::to_string(getpid()) + "_" +
                     std::to_string(random());
  // Signed before it bears its name: until then it is nobody's.
  fs::path folder = fs::temp_directory_path() / name;
  fs::path unsigned_yet = folder.parent_path() / ("." + name);
  fs::create_directory(unsigned_yet);
  Mailbox(unsigned_yet).sign();
  fs::rename(unsigned_yet, folder);
  return Mailbox(folder);
}

void Mailbox::sign() const {
  std::ofstream(folder_ + "/" + signature + std::to_string(getpid()));
}

void Mailbox::post(const std::string& name, const Message& message) const {
  std::string whole = folder_ + "/" + name;
  std::string part = folder_ + "/.part." + name;
  std::ofstream file(part, std::ios::binary);
  Header header = {message.label.size(), message.num_read};
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(message.label.data(), message.label.size());
  file.write(message.bytes.data(), message.bytes.size());
  file.close();
  fs::rename(part, whole);
}

std::optional<Message> Mailbox::find(const std::string& name) const {
  std::ifstream file(
      folder_ + "/" + name, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  auto size = static_cast<size_t>(file.tellg());
  file.seekg(0);
  Header header = {};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  Message message;
  message.num_read = header.num_read;
  message.label.resize(header.label_size);
  file.read(message.label.data(), header.label_size);
  message.bytes.resize(size - sizeof header - header.label_size);
  file.read(message.bytes.data(), message.bytes.size());
  return message;
}

void Mailbox::remove(const std::string& name) const {
  std::error_code error;
  fs::remove(folder_ + "/" + name, error);
}

}  // namespace cuda_double
