#pragma once
// The program `composer` in this process, and a run's checkpoints to show it.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "composer/cli/console.h"
#include "composer/optim/adam.h"
#include "tests/support/tiny.h"

namespace composer::test {

struct Answer {
  int code = 0;
  std::string out, err;
  bool says(const std::string& text) const { return out.find(text) != std::string::npos; }
  bool complains(const std::string& text) const { return err.find(text) != std::string::npos; }
  // One line, that begins with the program's name.
  bool is_one_line() const {
    return err.starts_with("composer: ") && std::ranges::count(err, '\n') == 1 && err.ends_with('\n');
  }
};

inline Answer composer_program(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = cli::run(arguments, {out, err});
  return {code, std::move(out).str(), std::move(err).str()};
}

struct CliFolder {
  CliFolder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~CliFolder() { std::filesystem::remove_all(path); }
  CliFolder(const CliFolder&) = delete;
  CliFolder& operator=(const CliFolder&) = delete;
  std::string operator/(const std::string& name) const { return path / name; }
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("composer-cli-" + std::to_string(getpid()));
};

// Four batches, a checkpoint after every second.
inline void train_into(const std::string& save_folder) {
  TrainerOptions options = tiny_options();
  options.optimizer = optim::adamw({.lr = 0.1});
  options.eval_dataloader = tiny_loader(9, 4);
  options.eval_interval = "1ba";
  options.seed = 7;
  options.save_folder = save_folder;
  options.save_interval = "2ba";
  Trainer(std::move(options)).fit();
}

inline void flip_byte(const std::string& path, std::streamoff from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const int byte = file.get();
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

}  // namespace composer::test
