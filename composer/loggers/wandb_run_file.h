#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "composer/loggers/wandb_file.h"
#include "composer/util/output_file.h"

namespace composer::loggers {

// The file of an offline run: numbered records in their frames. write() writes everything that was appended since
// prepare(), or nothing. The end of the file may be given up: it stays in the file until the next write replaces it.
class WandBRunFile {
 public:
  struct End {  // the bytes of the file after the first `size` bytes
    std::int64_t size = 0;
    std::string bytes = {};
  };

  // Both throw ConfigError if the file cannot be written, or if another logger is writing it. go_on() removes
  // everything after the first `size` bytes, and throws Error if that fails.
  void create(const std::string& path);
  void go_on(const std::string& path, std::int64_t size, std::int64_t records);
  bool is_removed() const { return file_->is_removed(); }
  void sync() { file_->sync(); }
  void close() { file_->close(); }

  std::int64_t records() const { return records_; }
  std::int64_t size() const { return given_up_ ? given_up_->size : file_->size(); }  // without a given up end

  void give_up(End end) { given_up_ = std::move(end); }
  bool gives_up() const { return given_up_.has_value(); }

  void prepare();  // begins a new write; its bytes follow size()
  void append_start() { bytes_ += wandb_file_start(); }
  void append(std::string_view run_id, const WandBContent& content);
  bool is_prepared() const { return !bytes_.empty(); }
  // Size of the file after the write.
  std::int64_t end() const { return begin_ + static_cast<std::int64_t>(bytes_.size()); }
  // The prepared bytes after the first `size` bytes of the file; unset if `size` is less than the size before the
  // write.
  std::optional<std::string> bytes_behind(std::int64_t size) const;
  void write();
  void set_records(std::int64_t records) { records_ = records; }

 private:
  std::unique_ptr<util::OutputFile> file_;
  std::int64_t records_ = 0;
  std::optional<End> given_up_;
  std::string bytes_;       // prepared bytes
  std::int64_t begin_ = 0;  // position of the prepared bytes in the file
};

}  // namespace composer::loggers
