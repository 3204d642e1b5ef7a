// Fine-tunes a ResNet-18 that was trained elsewhere, for example by torchvision, on photographs in one folder for each
// class. The new last layer learns alone for an epoch, then the whole network. Writes a folder from which any program
// predicts (docs/reference/predict.md).
//
//   finetune WEIGHTS IMAGES PREDICTOR [DURATION [SIZE]]     resnet18.pth pets/ pets-model 5ep 224
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <composer/algorithms/freeze_until.h>
#include <composer/data/image/image_folder.h>
#include <composer/data/image/image_preprocessing.h>
#include <composer/data/map_style.h>
#include <composer/data/split.h>
#include <composer/formats/weights.h>
#include <composer/loggers/progress_bar.h>
#include <composer/models/resnet.h>
#include <composer/optim/adam.h>
#include <composer/optim/schedulers.h>
#include <composer/predict/predictor.h>
#include <composer/trainer/trainer.h>

using namespace composer;

int main(int argc, char** argv) try {
  if (argc < 4) throw ConfigError("call it as: finetune WEIGHTS IMAGES PREDICTOR [DURATION [SIZE]]");
  const std::int64_t size = argc > 5 ? std::stoll(argv[5]) : 224;
  const auto prepare = std::make_shared<data::ImagePreprocessing>(
      data::ImagePreprocessingOptions{.resize = size * 8 / 7, .crop = size, .normalize = data::imagenet_normalize()});
  const data::Transforms augment{data::RandomResizedCrop{size, {0.3, 1}}, data::RandomHorizontalFlip{},
                                 data::imagenet_normalize()};
  const data::ImageFolder augmented(argv[2], {.transform = augment});
  const data::ImageFolder plain(argv[2], {.transform = prepare->transforms()});
  const auto rows = data::split_rows(plain.size(), {0.8, 0.2}, {.stratify = plain.targets()});

  const auto classes = static_cast<std::int64_t>(plain.classes().size());
  const auto model = models::resnet({.depth = 18, .num_classes = classes});
  load_weights(*model, argv[1], {.rename = {{"", "module."}}, .ignore = {"module.fc.*"}});
  Trainer trainer(TrainerOptions{
      .model = model,
      .train_dataloader = data::map_style(data::subset(augmented, rows[0]), {.batch_size = 32, .num_workers = 2}),
      .eval_dataloader = data::map_style(data::subset(plain, rows[1]), {.batch_size = 64, .shuffle = false}),
      .optimizer = optim::adamw({.lr = 3e-4, .weight_decay = 1e-2}),
      .schedulers = {optim::cosine_annealing()},
      .max_duration = Time::parse(argc > 4 ? argv[4] : "5ep"),
      .algorithms = {algorithms::FreezeUntil({.except = {"module.fc.*"}, .until = "1ep"})},
      .loggers = {loggers::ProgressBar()},
      .seed = 1,
  });
  trainer.fit();
  const double accuracy = trainer.state().metrics.at("eval", "MulticlassAccuracy");
  save_predictor(argv[3], *model,
                 {.preprocessing = prepare, .classes = plain.classes(), .metadata = {{"accuracy", join(accuracy)}}});

  const auto predictor = Predictor::load(argv[3]);  // as another program would
  const Outputs outputs =
      predictor.predict_prepared(predictor.preprocessing<data::ImagePreprocessing>().read(std::vector{plain.file(0)}));
  std::cout << "accuracy " << accuracy << "; " << plain.file(0).string() << " shows: " << predictor.labels(outputs)[0]
            << '\n';
} catch (const std::exception& error) {
  std::cerr << "error: " << describe(error) << '\n';
  return 1;
}
