"""The pictures of docs/rules.md: for every rule a real run in which it finds something.

python -m tools.rule_pictures [--only RULE] [--runs FOLDER]
"""
