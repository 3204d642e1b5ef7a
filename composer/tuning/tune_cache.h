#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace composer {

class StateVisitor;

// What Tuner found: the fastest way to train one model, with one shape of batch, on one machine.
struct Tuned {
  bool channels_last = false;
  bool autocast = false;
  int threads = 1;
  std::optional<std::string> products = {};  // text of a kernels::ProductTable; unset: libtorch's, not raced
  // Of a step when it was measured. Not in checkpoints, which are the same for the same run.
  std::optional<double> seconds = {};

  void visit_state(StateVisitor& visit);
  // For other processes. parse() gives nothing for an empty text.
  std::string text() const;
  static std::optional<Tuned> parse(const std::string& text);
};

// Results of earlier runs in a JSON file, by a text that names model, batch and machine. A file that is missing or
// damaged is an empty one. Threads and processes that put results in one file lose none.
class TuneCache {
 public:
  // Empty: $XDG_CACHE_HOME/libcomposer/tune.json, or $HOME/.cache/libcomposer/tune.json; without both, nothing is kept.
  explicit TuneCache(std::filesystem::path file);

  std::optional<Tuned> find(const std::string& key) const;
  void put(const std::string& key, const Tuned& tuned) const;  // a file that cannot be written is a warning
  void forget(const std::string& key) const;                   // likewise

 private:
  void change(const std::string& key, const std::optional<Tuned>& tuned) const;

  std::filesystem::path file_;
};

}  // namespace composer
