#!/usr/bin/env python3
"""Train from a folder, from here: see ../distrib_train_from_file.py."""

from recipes.distrib_train_from_file import main

if __name__ == "__main__":
    main()
