#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "composer/loggers/wandb_file.h"
#include "composer/util/output_file.h"

namespace composer::loggers {

// The file of an offline run: numbered records in their frames. What is appended since prepare() is written at once,
// all of it or nothing. The end of the file may be given up: it stays until the next bytes replace it.
class WandBRunFile {
 public:
  struct End {  // the bytes of the file behind `size`
    std::int64_t size = 0;
    std::string bytes = {};
  };

  // Both throw ConfigError if the file cannot be written, or somebody else writes it. go_on() cuts what follows `size`,
  // and throws Error if that fails.
  void create(const std::string& path);
  void go_on(const std::string& path, std::int64_t size, std::int64_t records);
  bool is_removed() const { return file_->is_removed(); }
  void sync() { file_->sync(); }
  void close() { file_->close(); }

  std::int64_t records() const { return records_; }
  std::int64_t size() const { return given_up_ ? given_up_->size : file_->size(); }  // of what stays

  void give_up(End end) { given_up_ = std::move(end); }
  bool gives_up() const { return given_up_.has_value(); }

  void prepare();  // bytes that follow size()
  void append_start() { bytes_ += wandb_file_start(); }
  void append(std::string_view run_id, const WandBContent& content);
  bool is_prepared() const { return !bytes_.empty(); }
  std::int64_t end() const { return begin_ + static_cast<std::int64_t>(bytes_.size()); }  // with these bytes
  // What of these bytes is behind `size`; unset: they all are, and more is before them.
  std::optional<std::string> bytes_behind(std::int64_t size) const;
  void write();
  void take_back(std::int64_t records) { records_ = records; }  // those that could not be written

 private:
  std::unique_ptr<util::OutputFile> file_;
  std::int64_t records_ = 0;
  std::optional<End> given_up_;
  std::string bytes_;       // to be written
  std::int64_t begin_ = 0;  // of these, in the file
};

}  // namespace composer::loggers
