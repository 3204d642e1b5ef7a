#include "composer/loggers/wandb_run_file.h"

#include <cstddef>

namespace composer::loggers {

void WandBRunFile::create(const std::string& path) {
  file_ = std::make_unique<util::OutputFile>(kWandBLogger, path, util::FileMode::CREATE, util::Writers::ONE);
  records_ = 0;
  given_up_.reset();
}

void WandBRunFile::go_on(const std::string& path, std::int64_t size, std::int64_t records) {
  file_.reset();  // releases its lock
  file_ = std::make_unique<util::OutputFile>(kWandBLogger, path, util::FileMode::APPEND, util::Writers::ONE);
  file_->cut(size);
  records_ = records;
}

void WandBRunFile::prepare() {
  begin_ = size();
  bytes_.clear();
}

void WandBRunFile::append(std::string_view run_id, const WandBContent& content) {
  append_wandb_framed(bytes_, wandb_record(++records_, run_id, content), begin_);
}

std::optional<std::string> WandBRunFile::bytes_behind(std::int64_t size) const {
  if (size < begin_) return std::nullopt;
  return bytes_.substr(static_cast<std::size_t>(size - begin_));
}

void WandBRunFile::write() {
  if (given_up_)
    file_->replace_end(given_up_->size, bytes_, given_up_->bytes);
  else
    file_->write(bytes_);
  given_up_.reset();
}

}  // namespace composer::loggers
