#!/usr/bin/env python3
"""Fails if a struct of options of composer/ is described nowhere, as composer/core/option.h does it, and has no reason here.

That a description leaves out no field is up to the compiler: see all_options()."""
import argparse
import pathlib
import re
import sys

argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
COMPOSER = pathlib.Path(__file__).resolve().parent.parent / 'composer'

WITHOUT_LIBTORCH = 'is of sources that are compiled without libtorch, which a description needs'
COMMAND_LINE = 'is described to CLI11, which reads it, checks it and shows it'
YES_OR_NO = 'is yes or no'
GIVEN_ON = 'is made by the library of options that are described'
ANY_VALUE = 'may have any value that its type has'
NOT_DESCRIBED = {
    WITHOUT_LIBTORCH: ['net/HttpOptions', 'net/StoreOptions', 'net/UploadQueueOptions', 'util/Options',
                       'util/PlotOptions'],
    COMMAND_LINE: ['cli/CompareOptions', 'cli/ConvertOptions', 'cli/DiffOptions', 'cli/InspectOptions', 'cli/KillOptions', 'cli/LaunchOptions',
                   'cli/SameRunOptions', 'cli/TortureOptions', 'cli/VerifyOptions'],
    YES_OR_NO: ['data/NpyOptions', 'formats/PickleOptions', 'formats/PtOptions', 'formats/SafetensorsOptions'],
    GIVEN_ON: ['callbacks/SystemSamplerOptions', 'checkpoint/SaverOptions', 'core/LoadOptions', 'data/SamplerOptions',
               'loggers/LineFileOptions', 'loggers/WandBWriterOptions', 'models/ResidualNetOptions',
               'optim/GroupOptions', 'remote/RemoteMirrorOptions'],
    ANY_VALUE: ['formats/LoadWeightsOptions', 'formats/SaveWeightsOptions', 'models/RegressorOptions', 'predict/SavePredictorOptions',
                'util/BinaryCrossEntropyOptions', 'util/DiceLossOptions', 'util/SoftCrossEntropyOptions'],
    'has one rule, of several fields together': ['dist/Options', 'models/ClassifierOptions'],
    'has no field': ['core/NoOptions'],
}
DESCRIBED = re.compile(r'\bOption<(\w+)>|\busing O = (?:\w+::)*(\w+);|&(\w+)::\w+|(?:_options|with_names)<(\w+)>')

declared, described = set(), set()
for path in [*COMPOSER.rglob('*.h'), *COMPOSER.rglob('*.cpp')]:
    code = re.sub(r'//[^\n]*', '', path.read_text())
    module = path.relative_to(COMPOSER).parts[0]
    declared |= {f'{module}/{name}' for name in re.findall(r'\bstruct (\w*Options)\b[^;(){}]*{', code)}
    described |= {f'{module}/{name}' for found in DESCRIBED.findall(code) for name in found if name}
reasons = {name: reason for reason, names in NOT_DESCRIBED.items() for name in names}
wrong = [f'{name} is described by no all_options() of its module: see composer/core/option.h'
         for name in sorted(declared - described - set(reasons))]
wrong += [f'{name} is in NOT_DESCRIBED of scripts/options.py ("{reasons[name]}"), and '
          + ('is described' if name in described else 'is no struct of options') for name in sorted(set(reasons) - (declared - described))]
print('\n'.join(wrong) or f'options: {len(declared) - len(reasons)} structs of options are described, '
      f'{len(reasons)} have a reason not to be')
sys.exit(bool(wrong))
