#include "composer/data/text/token_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/batch_memory.h"
#include "composer/data/seekable_loader.h"
#include "composer/formats/byte_source.h"
#include "composer/util/parallel.h"
#include "composer/util/random.h"

namespace composer::data {
namespace {

constexpr std::uint64_t kWindow = 7;
constexpr std::int64_t kWindowBytesPerThread = 1 << 19;  // as in in_memory
constexpr const char* kDtypes = "be at::kUInt16, at::kUInt32, at::kInt or at::kLong";

bool is_dtype(at::ScalarType type) {
  return type == at::kUInt16 || type == at::kUInt32 || type == at::kInt || type == at::kLong;
}

std::vector<Option<TokenFileOptions>> token_file_options() {
  using O = TokenFileOptions;
  return all_options(part("dtype", &O::dtype, "a dtype").must(kDtypes, is_dtype),
                     option("vocabulary", &O::vocabulary).at_least(0));
}

std::vector<Option<TokenWindowOptions>> token_window_options() {
  using O = TokenWindowOptions;
  return all_options(option("batch_size", &O::batch_size).at_least(1), option("length", &O::length).from_to(1, 1 << 30),
                     option("random", &O::random), option("samples", &O::samples).at_least(0),
                     option("stride", &O::stride).at_least(0), option("shuffle", &O::shuffle), option("seed", &O::seed),
                     option("drop_last", &O::drop_last), option("prefetch", &O::prefetch).at_least(0),
                     option("pin_memory", &O::pin_memory));
}

// Widens numbers. Returns the largest of them as unsigned numbers of their size.
template <class T>
std::uint64_t widen(const char* from, std::int64_t count, std::int64_t* to) {
  std::make_unsigned_t<T> largest = 0;  // of this size, because that is faster
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    to[i] = static_cast<std::int64_t>(value);
    largest = std::max(largest, static_cast<std::make_unsigned_t<T>>(value));
  }
  return largest;
}

std::uint64_t widen(at::ScalarType type, const char* from, std::int64_t count, std::int64_t* to) {
  switch (type) {
    case at::kUInt16:
      return widen<std::uint16_t>(from, count, to);
    case at::kUInt32:
      return widen<std::uint32_t>(from, count, to);
    case at::kInt:
      return widen<std::int32_t>(from, count, to);
    default:
      return widen<std::int64_t>(from, count, to);
  }
}

// The number of tokens that a type can hold.
std::uint64_t most_tokens(at::ScalarType type) {
  switch (type) {
    case at::kUInt16:
      return std::uint64_t{1} << 16;
    case at::kUInt32:
      return std::uint64_t{1} << 32;
    case at::kInt:
      return std::uint64_t{1} << 31;
    default:
      return std::uint64_t{1} << 63;
  }
}

}  // namespace

class TokenFile::Files {
 public:
  Files(const std::vector<std::filesystem::path>& paths, TokenFileOptions options)
      : type_(options.dtype),
        bytes_(static_cast<std::int64_t>(c10::elementSize(type_))),
        vocabulary_(options.vocabulary),
        limit_(most_tokens(type_)) {
    if (vocabulary_ > 0) limit_ = std::min(limit_, static_cast<std::uint64_t>(vocabulary_));

    if (paths.empty()) throw ConfigError("TokenFile: no file is named");
    for (const std::filesystem::path& path : paths) add(path);
    if (size() == 0) throw DataError(paths.front().string(), ": has no tokens");
  }

  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // `scratch` is memory that is used again by the next call.
  void read(std::int64_t from, std::int64_t count, std::int64_t* to, std::vector<char>& scratch) const {
    auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, from) - ends_.begin());
    while (count > 0) {
      const std::int64_t begin = file == 0 ? 0 : ends_[file - 1];
      const std::int64_t some = std::min(count, ends_[file] - from);
      read_in(file, from - begin, some, to, scratch);
      from += some;
      to += some;
      count -= some;
      ++file;
    }
  }

  // Reads a window of tokens, and of those that follow each.
  void read_window(std::int64_t from, std::int64_t length, std::int64_t* tokens, std::int64_t* next,
                   std::vector<char>& scratch) const {
    const auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, from) - ends_.begin());
    if (from + length >= ends_[file]) {  // it goes on in another file
      read(from, length, tokens, scratch);
      read(from + 1, length, next, scratch);
      return;
    }
    const std::int64_t at = from - (file == 0 ? 0 : ends_[file - 1]);
    read_bytes(file, at, length + 1, scratch);
    put(file, at, scratch.data(), length, tokens);
    put(file, at + 1, scratch.data() + bytes_, length, next);
  }

 private:
  void add(const std::filesystem::path& path) {
    try {
      files_.push_back(formats::open_file(path));
    } catch (const CheckpointError& error) {
      throw DataError("TokenFile: ", error.what());
    }
    const std::uint64_t size = files_.back()->size();
    if (size % static_cast<std::uint64_t>(bytes_) != 0)
      throw DataError(path.string(), ": has ", size, " bytes, which is no whole number of tokens of ", bytes_,
                      " bytes (dtype ", type_, "); is the dtype right, and the file complete?");
    ends_.push_back(this->size() + static_cast<std::int64_t>(size) / bytes_);
  }

  void read_in(std::size_t file, std::int64_t from, std::int64_t count, std::int64_t* to,
               std::vector<char>& scratch) const {
    read_bytes(file, from, count, scratch);
    put(file, from, scratch.data(), count, to);
  }

  void read_bytes(std::size_t file, std::int64_t from, std::int64_t count, std::vector<char>& scratch) const {
    const auto size = static_cast<std::size_t>(count * bytes_);
    if (scratch.size() < size) scratch.resize(size);
    try {
      files_[file]->read(static_cast<std::uint64_t>(from * bytes_), scratch.data(), size);
    } catch (const CheckpointError& error) {
      throw DataError("TokenFile: ", error.what());
    }
  }

  // Widens and checks the tokens of a file from position `from` on, which are in `bytes`.
  void put(std::size_t file, std::int64_t from, const char* bytes, std::int64_t count, std::int64_t* to) const {
    if (widen(type_, bytes, count, to) < limit_ || count == 0) return;
    std::int64_t at = 0;
    while (static_cast<std::uint64_t>(to[at]) < limit_) ++at;
    throw DataError(files_[file]->name(), ": token ", from + at, " is ", to[at], ", and the vocabulary has ",
                    vocabulary_ > 0 ? join(vocabulary_, " tokens") : "no negative tokens",
                    "; is the dtype right, and the file of this tokenizer?");
  }

  at::ScalarType type_;
  std::int64_t bytes_, vocabulary_;
  std::uint64_t limit_;  // all tokens are below it
  std::vector<std::unique_ptr<formats::ByteSource>> files_;
  std::vector<std::int64_t> ends_;  // tokens up to the end of each file
};

TokenFile::TokenFile(const std::filesystem::path& path, TokenFileOptions options)
    : TokenFile(std::vector{path}, options) {}

TokenFile::TokenFile(const std::vector<std::filesystem::path>& paths, TokenFileOptions options)
    : files_(std::make_shared<const Files>(paths, checked("TokenFile", options, token_file_options()))),
      end_(files_->size()) {}

TokenFile TokenFile::part(double from, double to) const {
  if (!(from >= 0 && from < to && to <= 1))
    throw ConfigError("TokenFile: part() must have 0 <= from < to <= 1, got ", from, " and ", to);
  const auto place = [this](double fraction) {
    return begin_ + static_cast<std::int64_t>(std::llround(static_cast<double>(size()) * fraction));
  };
  TokenFile part = *this;
  part.begin_ = place(from);
  part.end_ = place(to);
  return part;
}

void TokenFile::read(std::int64_t from, std::span<std::int64_t> tokens) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (from < 0 || from > size() || count > size() - from)
    throw DataError("TokenFile: cannot read ", count, " tokens at ", from, "; there are ", size());
  std::vector<char> scratch;
  files_->read(begin_ + from, count, tokens.data(), scratch);
}

at::Tensor TokenFile::tensor() const {
  at::Tensor all = at::empty({size()}, at::kLong);
  constexpr std::int64_t kAtOnce = 1 << 20;
  std::vector<char> scratch;
  for (std::int64_t at = 0; at < size(); at += kAtOnce)
    files_->read(begin_ + at, std::min(kAtOnce, size() - at), all.mutable_data_ptr<std::int64_t>() + at, scratch);
  return all;
}

// Makes the batches of one sampler. Thread-safe.
class TokenWindows {
 public:
  TokenWindows(TokenFile tokens, const TokenWindowOptions& options, std::shared_ptr<const detail::Sampler> sampler)
      : tokens_(std::move(tokens)),
        length_(options.length),
        stride_(options.random ? 0 : stride_of(options)),
        sampler_(std::move(sampler)),
        inputs_(static_cast<std::size_t>(options.prefetch) + detail::kHeldByOthers, options.pin_memory),
        targets_(static_cast<std::size_t>(options.prefetch) + detail::kHeldByOthers, options.pin_memory) {}

  static std::int64_t stride_of(const TokenWindowOptions& options) {
    return options.stride > 0 ? options.stride : options.length;
  }
  // Number of windows in an epoch.
  static std::int64_t count(std::int64_t tokens, const TokenWindowOptions& options) {
    const std::int64_t places = tokens - options.length;  // where a window may begin; the last one has a next token
    if (places < 1)
      throw DataError("token_windows: a window of ", options.length, " tokens and the next one do not fit into ",
                      tokens, " tokens");
    if (options.random)
      return options.samples > 0 ? options.samples : std::max<std::int64_t>(1, tokens / options.length);
    return (places - 1) / stride_of(options) + 1;
  }

  Batch make(std::int64_t epoch, std::int64_t batch) {
    const detail::Sampler::Span span = sampler_->span(batch);
    const std::shared_ptr<const detail::Sampler::Order> order = sampler_->order(epoch);
    at::Tensor inputs = inputs_.take({span.count, length_}, at::kLong);
    at::Tensor targets = targets_.take({span.count, length_}, at::kLong);
    auto* const input = inputs.mutable_data_ptr<std::int64_t>();
    auto* const target = targets.mutable_data_ptr<std::int64_t>();
    const auto fill = [&](std::int64_t first, std::int64_t last) {
      std::vector<char> scratch;
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t sample = order ? (*order)[static_cast<std::size_t>(span.from + i)] : span.from + i;
        const std::int64_t from = tokens_.begin_ + place(epoch, sample);
        tokens_.files_->read_window(from, length_, input + i * length_, target + i * length_, scratch);
      }
    };
    const std::int64_t row = 2 * length_ * static_cast<std::int64_t>(sizeof(*input));
    if (span.count * row <= kWindowBytesPerThread) {
      fill(0, span.count);
    } else {
      parallel_for(0, span.count, std::max<std::int64_t>(1, kWindowBytesPerThread / row), fill);
    }
    return {{"input_ids", std::move(inputs)}, {"target", std::move(targets)}};
  }

 private:
  std::int64_t place(std::int64_t epoch, std::int64_t sample) const {
    if (stride_ > 0) return sample * stride_;
    RandomStream random(hash64(sampler_->seed(), kWindow, epoch, sample));
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tokens_.size() - length_)));
  }

  TokenFile tokens_;
  std::int64_t length_, stride_;  // stride_ 0: random places
  std::shared_ptr<const detail::Sampler> sampler_;
  detail::BatchMemory inputs_, targets_;
};

std::shared_ptr<Loader> token_windows(TokenFile tokens, TokenWindowOptions options) {
  options = checked("token_windows", options, token_window_options());
  if (options.random && options.stride > 0)
    throw ConfigError("token_windows: stride is of windows that are not random; set random = false");
  if (!options.random && options.samples > 0)
    throw ConfigError("token_windows: samples is of random windows; without them, the stride tells how many there are");
  detail::check_pin_memory("token_windows", options.pin_memory);
  auto sampler =
      std::make_shared<detail::Sampler>(detail::SamplerOptions{.who = "token_windows",
                                                               .samples = TokenWindows::count(tokens.size(), options),
                                                               .batch_size = options.batch_size,
                                                               .shuffle = !options.random && options.shuffle,
                                                               .seed = options.seed,
                                                               .drop_last = options.drop_last});
  const detail::SeekableLoader::Ahead ahead{.threads = options.prefetch > 0, .depth = options.prefetch};
  return std::make_shared<detail::SeekableLoader>(
      std::move(sampler), ahead, [tokens = std::move(tokens), options](const auto& batches) {
        const auto windows = std::make_shared<TokenWindows>(tokens, options, batches);
        return [windows](std::int64_t epoch, std::int64_t batch, detail::StillWanted) {
          return windows->make(epoch, batch);
        };
      });
}

}  // namespace composer::data
