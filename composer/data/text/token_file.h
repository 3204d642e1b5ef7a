#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <c10/core/ScalarType.h>

#include "composer/core/export.h"
#include "composer/data/loader.h"
#include "composer/data/text/tokenizer.h"

namespace composer::data {

struct TokenFileOptions {
  at::ScalarType dtype = at::kUInt16;  // of a token: at::kUInt16, at::kUInt32, at::kInt or at::kLong
  std::int64_t vocabulary = 0;         // number of tokens; batches with others are an error; 0: only negative ones
};

// Tokens in files that contain nothing else, one after another in the byte order of the machine, as nanoGPT and others
// write them. They are read from the disk when they are needed, so a file may be larger than the memory. Several files
// are one text. Copies share the files. Thread-safe.
class COMPOSER_EXPORT TokenFile {
 public:
  // Throws DataError for a file that is missing, or has no whole number of tokens.
  explicit TokenFile(const std::filesystem::path& path, TokenFileOptions options = {});
  explicit TokenFile(const std::vector<std::filesystem::path>& paths, TokenFileOptions options = {});

  std::int64_t size() const { return end_ - begin_; }  // tokens
  // The part between two fractions of the text: part(0, 0.9) for training, part(0.9, 1) for validation.
  TokenFile part(double from, double to) const;
  // Reads tokens from position `from` on. Throws DataError.
  void read(std::int64_t from, std::span<std::int64_t> tokens) const;
  at::Tensor tensor() const;  // all of them, int64 [size()]

 private:
  friend class TokenWindows;
  class Files;
  std::shared_ptr<const Files> files_;
  std::int64_t begin_ = 0, end_ = 0;
};

struct TokenWindowOptions {
  std::int64_t batch_size = 0;  // required: number of windows
  std::int64_t length = 0;      // required: tokens of a window, at most the sequence_length of the model
  bool random = true;           // windows at random places; false: one every `stride` tokens
  std::int64_t samples = 0;     // if random: windows in an epoch; 0: as many as fit side by side
  std::int64_t stride = 0;      // if not random: from the start of one window to that of the next; 0: `length`
  bool shuffle = true;          // if not random: a new order in each epoch, which depends only on (seed, epoch)
  std::optional<std::uint64_t> seed = {};  // unset: the trainer's seed; 17 in evaluation and without a trainer
  bool drop_last = false;                  // omit an epoch's last batch if it is smaller
  std::int64_t prefetch = 0;               // number of batches prepared ahead on a background thread; 0: none
  bool pin_memory = false;  // page-locked batches, so that copies to a GPU do not block the host; requires CUDA
};

// Returns a loader of windows of a text: "input_ids", int64 [N, length], and "target", int64 [N, length], the tokens
// that follow each. A place depends only on (seed, epoch, number of the window), so a run can be resumed. Throws
// ConfigError for invalid options, DataError for a text that is too short for one window.
COMPOSER_EXPORT std::shared_ptr<Loader> token_windows(TokenFile tokens, TokenWindowOptions options);

// A file of tokens that appears when it is complete, or not at all.
class COMPOSER_EXPORT TokenWriter {
 public:
  explicit TokenWriter(const std::filesystem::path& path, at::ScalarType dtype = at::kUInt16);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  void write(std::span<const std::int64_t> tokens);  // throws DataError for a token that the dtype cannot hold
  std::int64_t size() const { return size_; }        // tokens written
  void commit();

 private:
  struct File;
  std::unique_ptr<File> file_;
  at::ScalarType dtype_;
  std::int64_t size_ = 0;
};

struct WriteTokensOptions {
  at::ScalarType dtype = at::kUInt16;            // of a token; at::kUInt16 holds vocabularies up to 65,536
  std::optional<std::int64_t> end_of_text = {};  // token that is written after each text; unset: none
};

// Encodes files of text one after another into a file of tokens, on libtorch's threads, a few megabytes at a time.
// Returns the number of tokens. Throws DataError for text that cannot be read or encoded, and ConfigError for a
// vocabulary that the dtype cannot hold; there is no file then.
COMPOSER_EXPORT std::int64_t write_tokens(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                          const std::vector<std::filesystem::path>& texts,
                                          WriteTokensOptions options = {});

}  // namespace composer::data
