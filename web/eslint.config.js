import react from 'eslint-plugin-react'
import hooks from 'eslint-plugin-react-hooks'
import { config, configs } from 'typescript-eslint'

export default config(
  { files: ['test/*.ts'], extends: [configs.recommended] },
  {
    files: ['src/**/*.{ts,tsx}'],
    ignores: ['src/openapi.d.ts'],
    extends: [configs.recommended],
    plugins: { react, 'react-hooks': hooks },
    settings: { react: { pragma: 'h', version: '19' } },
    rules: {
      'no-restricted-syntax': [
        'error',
        {
          selector:
            'VariableDeclarator[init.callee.name=/^use(State|Reducer)$/] > ArrayPattern > Identifier ~ Identifier:not([name=/^set[A-Z]/])',
          message: 'The setter of a state x is setX.',
        },
      ],
      'react/jsx-key': 'error',
      'react-hooks/rules-of-hooks': 'error',
      'react-hooks/exhaustive-deps': 'error',
    },
  },
)
