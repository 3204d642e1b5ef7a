// Trains a small GPT on the bytes of texts, and lets it go on with one: ./gpt [DURATION [FILE...]], as in ./gpt 30ep
// book.txt. Without files it reads the licences that are on every Debian. Each line of an epoch has the perplexity of a
// byte.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <unistd.h>

#include <composer/algorithms/gradient_clipping.h>
#include <composer/core/error.h>
#include <composer/core/model.h>
#include <composer/data/text/token_file.h>
#include <composer/loggers/progress_bar.h>
#include <composer/models/generate.h>
#include <composer/models/gpt.h>
#include <composer/optim/schedulers.h>
#include <composer/trainer/trainer.h>

namespace fs = std::filesystem;
using namespace composer;

int main(int argc, char** argv) try {
  const std::string duration = argc > 1 ? argv[1] : "15ep", prompt = "You may copy and distribute ";
  std::vector<fs::path> texts(argv + std::min(argc, 2), argv + argc);
  if (texts.empty())
    for (const auto& file : fs::directory_iterator("/usr/share/common-licenses"))
      if (!file.is_symlink()) texts.push_back(file);
  std::ranges::sort(texts);
  const data::ByteTokenizer tokenizer;
  const fs::path path = fs::temp_directory_path() / ("composer-gpt-" + std::to_string(::getuid()) + ".tokens");
  data::write_tokens(path, tokenizer, texts);
  const data::TokenFile tokens(path, {.vocabulary = tokenizer.size()});

  at::manual_seed(1);  // of the initial weights
  const auto model =
      models::gpt({.vocabulary = tokenizer.size(), .sequence_length = 128, .width = 128, .depth = 4, .heads = 4});
  Trainer trainer(TrainerOptions{
      .model = model,
      .train_dataloader = data::token_windows(tokens.part(0, 0.9), {.batch_size = 32, .length = 128}),
      .eval_dataloader = data::token_windows(tokens.part(0.9, 1), {.batch_size = 32, .length = 128, .random = false}),
      .optimizer = optim::adamw({.lr = 2e-3, .weight_decay = 0.1}),
      .schedulers = {optim::cosine_annealing_with_warmup({.t_warmup = "0.1dur"})},
      .max_duration = Time::parse(duration),
      .algorithms = {algorithms::GradientClipping({.clipping_threshold = 1})},
      .loggers = {loggers::ProgressBar()},
      .seed = 1,
  });
  trainer.fit();

  std::cout << prompt;
  models::generate(
      *model, tokenizer, prompt,
      {.max_new_tokens = 300, .temperature = 0.7, .top_k = 40, .on_token = [&](std::int64_t, std::int64_t token) {
         std::cout << tokenizer.decode(std::vector{token}) << std::flush;
       }});
  return trainer.interrupted_by() == 0 ? 0 : 128 + trainer.interrupted_by();
} catch (const std::exception& error) {
  std::cerr << describe(error) << '\n';
  return 1;
}
