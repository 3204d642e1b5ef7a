#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace composer {

class StateVisitor;

// The result of a Tuner: the fastest way to train one model, with one shape of batch, on one machine.
struct Tuned {
  bool channels_last = false;
  bool autocast = false;
  int threads = 1;
  // Text of a kernels::ProductTable; unset: not raced, libtorch's products are used.
  std::optional<std::string> products = {};
  // Time of a step when it was measured. Not in checkpoints, which are equal for equal runs.
  std::optional<double> seconds = {};

  void visit_state(StateVisitor& visit);
  // Text for other processes. parse() returns nullopt for an empty text.
  std::string text() const;
  static std::optional<Tuned> parse(const std::string& text);
};

// Results of earlier runs in a JSON file. The key is a text that names model, batch and machine. A missing or damaged
// file counts as empty. Several threads and processes can write to one file without losing results.
class TuneCache {
 public:
  // An empty path means $XDG_CACHE_HOME/libcomposer/tune.json, or $HOME/.cache/libcomposer/tune.json. If neither
  // variable is set, nothing is stored.
  explicit TuneCache(std::filesystem::path file);

  std::optional<Tuned> find(const std::string& key) const;
  void put(const std::string& key, const Tuned& tuned) const;  // warns if the file cannot be written
  void forget(const std::string& key) const;                   // warns if the file cannot be written

 private:
  void change(const std::string& key, const std::optional<Tuned>& tuned) const;

  std::filesystem::path file_;
};

}  // namespace composer
